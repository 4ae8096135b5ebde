"""The parts of the paper's model, in plain torch.

Axes in this package: B batch, N frames, L traces, P cells of the grid (h x w), C channels of the backbone,
D hidden, E embedding, K concept words, T words, V concept candidates or words of the vocabulary.
"""
