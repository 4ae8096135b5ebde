# make demo     the model that ctsan carries on five clips: a bare clone needs Python and make, and is not asked anything
# make test     style, types, the wheel, the site and every test: sets up PyTorch and all extras
# make quick    style, types and the tests that are not slow: under two minutes on two cores
# make docs     the documentation as a site with the Python reference: demo/site/index.html
# make wheel    the package as a file for pip: dist/
# make margins  every test that learns, from five seeds and with noise on features: how far each is from failing
# make bench    the tables of docs/, printed again; CORPUS=… names captioned clips of yours for those that need some
#
# PYTHON=python3.12   another Python, 3.11 or later; tested with 3.11 to 3.13
# TORCH_INDEX=…       an index with PyTorch for pip, in place of the choice that tools/install_torch.py makes
# CUDA=1              take the PyTorch that pip finds, with CUDA

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input
CORPUS ?= demo/shapes
MARGINS ?= margins.jsonl
NETS   := efficientnet-lite0 efficientnet-lite1 efficientnet-lite2 tiny-vit-5m

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

export TORCH_INDEX CUDA

.PHONY: install install-dev demo check test quick docs wheel margins bench clean

install: $(VENV)/installed
install-dev: $(VENV)/installed-dev

# What use needs: describing, searching, the page.
$(VENV)/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ctsan needs Python 3.11 or later: make PYTHON=python3.11")'
	@echo "Installing ctsan into $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --editable .
	@touch $@

# What training and the tests need too.
$(VENV)/installed-dev: $(VENV)/installed tools/install_torch.py
	@echo "Installing PyTorch and all extras into $(VENV) (a few minutes the first time)"
	$(BIN)/python tools/install_torch.py
	$(PIP) install --quiet --no-compile --editable '.[dev]'
	@touch $@

demo: install
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

test: install-dev
	$(MAKE) --no-print-directory -j 2 check docs
	$(PYTEST) -m "not slow" --cov --cov-report=term:skip-covered
	$(PYTEST) -m slow

quick: check
	$(PYTEST) -m "not slow"

docs: install-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# Without build isolation, as the tests build it: the build backend is one of the extras.
wheel: install-dev
	$(BIN)/python -m build --wheel --no-isolation --outdir dist . >/dev/null
	@ls -l dist/*.whl | awk '{printf "%s: %.1f MB\n", $$NF, $$5 / 1e6}'

check: install-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# Stopped, it goes on from $(MARGINS), which holds what was measured: remove it after a change. TESTS=… names some.
margins: install-dev
	$(PYTEST) -m learns --seeds 5 --jitter 1e-4 --timeout 3600 --margins $(MARGINS) $(TESTS)

demo/shapes: | install-dev
	$(BIN)/ctsan corpus make $@ --clips 60 --seed 0

bench: install-dev demo/shapes
	$(PIP) install --quiet --editable '.[bench]'
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
