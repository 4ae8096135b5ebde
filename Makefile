# make demo     a small corpus, and the model that ctsan carries on five clips: three minutes, from a bare clone
# make test     style, types and every test
# make quick    style, types and the tests that are not slow: under two minutes on two cores
# make margins  every test that learns, from five seeds and with noise on features: how far each is from failing
# make bench    the tables of docs/, printed again; CORPUS=… names captioned clips of yours for those that need some
#
# PYTHON=python3.12   another Python, 3.11 or later
# TORCH_INDEX=…       an index with CPU builds of PyTorch, where pip's own would bring CUDA
# CUDA=1              accept PyTorch with CUDA

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CORPUS ?= demo/shapes
MARGINS ?= margins.jsonl
NETS   := efficientnet-lite0 efficientnet-lite1 efficientnet-lite2 tiny-vit-5m

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

export TORCH_INDEX CUDA

.PHONY: install demo check test quick margins bench clean

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml tools/install_torch.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ctsan needs Python 3.11 or later: make PYTHON=python3.11")'
	@echo "Installing ctsan and what it needs into $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python tools/install_torch.py
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --editable '.[dev]'
	@touch $@

demo: install
	$(BIN)/ctsan corpus make demo/shapes --clips 60 --seed 0
	$(BIN)/ctsan corpus check demo/shapes
	$(BIN)/ctsan features demo/shapes --out demo/features
	$(BIN)/ctsan words demo/shapes --out demo/words
	$(BIN)/ctsan corpus items demo/shapes --split test --out demo/items
	@echo
	@echo "Now the model that ctsan carries, on clips that it has never seen:"
	$(BIN)/ctsan describe examples/clips
	$(BIN)/ctsan fill examples/clips/coffee.mp4 "a _____ of food on a table"
	$(BIN)/ctsan choose examples/clips/coffee.mp4 "a man is driving a car" "a cup of coffee on a table" "people dance on a stage"
	$(BIN)/ctsan rank "a dish of food on a table" examples/clips
	$(BIN)/ctsan trace examples/clips/coffee.mp4 -o demo/traces.png
	$(BIN)/ctsan index examples/clips --store demo/library
	$(BIN)/ctsan search "a cup on a table" --store demo/library
	@echo
	@echo "Where it looked is in demo/traces.png. Open the page: $(BIN)/ctsan serve --library main --store demo/library"
	@echo "Now your own clips: $(BIN)/ctsan describe FOLDER"

test: check
	$(PYTEST)

quick: check
	$(PYTEST) -m "not slow"

check: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Stopped, it goes on from $(MARGINS), which holds what was measured: remove it after a change. TESTS=… names some.
margins: install
	$(PYTEST) -m learns --seeds 5 --jitter 1e-4 --timeout 3600 --margins $(MARGINS) $(TESTS)

bench: demo
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --editable '.[bench]'
	$(BIN)/python bench/tagging.py
	$(BIN)/python bench/engines.py
	$(BIN)/python bench/features.py $(CORPUS)
	$(BIN)/python bench/store.py --files 20000
	for name in $(NETS); do $(BIN)/ctsan features $(CORPUS) --backbone $$name --out demo/bench/$$name; done
	$(BIN)/python bench/probe.py $(CORPUS) $(foreach name,$(NETS),--features demo/bench/$(name))
	$(BIN)/ctsan corpus make demo/shapes1000 --clips 1000 --seed 0
	$(BIN)/ctsan features demo/shapes1000 --out demo/features1000
	$(BIN)/python bench/order.py demo/shapes1000 --features demo/features1000

clean:
	rm -rf $(VENV) demo
