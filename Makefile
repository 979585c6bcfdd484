# make demo   the main job: judge the shipped programs on the best device there is, show what was kept; then a walk through the methods
# make test   everything that can be tested here
# make lab    JupyterLab on the pages
PY ?= python3
BIN := .venv/bin
# On a machine without a GPU, TORCH_INDEX=https://download.pytorch.org/whl/cpu saves some gigabytes of download
PIP := $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
export JUPYTER_PLATFORM_DIRS := 1

.PHONY: demo test lab setup pages readme clean
setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	@$(PY) -c 'import sys; sys.exit(sys.version_info<(3,11))' || { echo 'kernelrl needs Python 3.11 or newer: say make PY=python3.12'; exit 1; }
	@$(PY) -m venv .venv || { echo 'the venv module is missing: apt-get install python3-venv'; exit 1; }
	@echo 'installing into .venv (a few minutes the first time)'
	@$(PIP) -e '.[cuda,lab,train,dev]'
	@command -v c++ >/dev/null || command -v clang++ >/dev/null || { echo 'no C++ compiler found, installing one from PyPI (ziglang)'; $(PIP) ziglang; }
	@touch $@

demo: setup
	@$(BIN)/kernelrl cuke build --out runs/demo/cuke --protocol standard --faults 0
	@$(BIN)/kernelrl demo --out runs/demo
	@echo; echo 'Where to look next: runs/demo/cuke/table.md, then `make lab` and nbs/00_core.ipynb (or nbs/07_judge.ipynb to judge a kernel of your own)'

test: setup
	@$(BIN)/python -m pytest tests/test_shape.py
	$(BIN)/nbdev_test --n_workers 2 --do_print --timing
	$(BIN)/python -m pytest -n 2 --ignore tests/test_shape.py

lab: setup
	cd nbs && ../$(BIN)/jupyter lab index.ipynb

# after editing a page: export, clean, rewrite the README
pages: setup
	$(BIN)/nbdev_export && $(BIN)/nbdev_clean && $(MAKE) readme

readme: setup
	$(BIN)/python nbs/readme.py

clean:
	rm -rf .venv runs build *.egg-info
