# Two commands for a fresh machine: `make plan` runs the main job, `make test` runs lint, types and tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
OUT ?= out/deepseek-v3-on-gb200-nvl72

# Bytecode is kept from run to run: compiling the tests and the packages anew takes each process ten seconds.
export PYTHONDONTWRITEBYTECODE :=

# A step whose needs cannot be installed here says so and is left out; with STRICT=1 it fails, as in the workflows.
skipped = { echo "skipped: make $@: $(1)"; [ -z "$(STRICT)" ]; }
# A Python without ensurepip (Debian's, without python3-venv) still has pip: it fills the environment from outside.
install = if [ -x "$(BIN)/pip" ]; then "$(BIN)/python" -m pip install $(QUIET) -e ".[$(1)]" $(2); \
	else $(PYTHON) -m pip --python "$(BIN)/python" install $(QUIET) -e ".[$(1)]" $(2); fi
QUIET := --quiet --disable-pip-version-check
PYTEST = "$(BIN)/python" -m pytest -rs -n auto --dist worksteal

.PHONY: plan test lint types pytest wide browser ray site wheel sbom deps versions lock clean

plan: $(STAMP)
	$(BIN)/python -m rackplan plan --model deepseek-v3 --cluster gb200-nvl72 --phase decode \
		--context 4096 --redundant 32 -o "$(OUT)"

test: lint types pytest

lint: $(STAMP)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

types: $(STAMP)
	$(BIN)/python -m mypy

pytest: $(STAMP)
	$(PYTEST) -m "not wide and not browser and not ray"

# What takes long for its breadth: before a release and after a large move. COVERAGE=1 runs all tests but those in a
# browser and on Ray, and writes what they cover into out/coverage.
wide: $(STAMP)
ifdef COVERAGE
	$(call install,coverage)
	$(PYTEST) -m "not browser and not ray" --cov --cov-report=term:skip-covered --cov-report=html:out/coverage
else
	$(PYTEST) -m "wide and not browser and not ray"
endif

# Pages in a real browser: the system's Chromium, driven by Playwright's package (which downloads no browser of its own).
# Where either is absent the tests skip, and say so.
browser: $(STAMP)
	@{ $(call install,browser); } || $(call skipped,Playwright cannot be installed; its tests skip.)
	$(BIN)/python -m pytest -rs -n auto --dist loadfile tests/browser

# Studies on a real Ray cluster of two nodes on loopback, one of them killed half-way. Where Ray cannot be installed the
# tests skip, and say so.
ray: $(STAMP)
	@{ $(call install,ray); } || $(call skipped,Ray cannot be installed; its tests skip.)
	$(BIN)/python -m pytest -rs -m ray tests/test_rackplan/test_studies_ray.py

# The documentation, from docs/ into site/: strict, so a dead link or anchor ends it. Nothing is fetched by a reader.
site: $(STAMP)
	@if { $(call install,docs); }; \
		then NO_MKDOCS_2_WARNING=1 "$(BIN)/python" -m mkdocs build --strict && echo "Wrote site/index.html"; \
		else $(call skipped,mkdocs-material cannot be installed; the documentation site is not built.); fi

# Wheel and source distribution into dist/, built twice, installed in an environment of its own and tried there.
wheel: $(STAMP)
	@if $(UV_IS_HERE); then "$(BIN)/python" tools/wheel.py -o dist; \
		else $(call skipped,uv cannot be installed or finds no packages; the wheel is not tried.); fi

# The bill of materials of that wheel and all that it needs, into dist/ (CycloneDX).
sbom: wheel
	@if $(UV_IS_HERE); then "$(BIN)/uv" run --quiet --no-project --python "$(BIN)/python" \
		--with "cyclonedx-bom>=7.5,<8" --with uv tools/sbom.py dist/*.whl -o dist/sbom.cdx.json; \
		else $(call skipped,uv cannot be installed or finds no packages; there is no bill of materials.); fi

# Every import is declared, everything declared is imported, and what is installed fits together.
deps: $(STAMP)
	@if $(UV_IS_HERE); then \
		said=$$("$(BIN)/uv" --quiet tool run --from "deptry>=0.25,<1" deptry --no-ansi . 2>&1) \
			|| { echo "$$said" | grep -v "^Assuming"; exit 1; }; \
		"$(BIN)/uv" pip check --python "$(BIN)/python" && echo "deps: every import is declared"; \
		else $(call skipped,uv cannot be installed or finds no packages; dependencies are not checked.); fi

# The tests with the oldest and with the newest versions of the dependencies (minutes; `make test` takes what is installed).
versions: $(STAMP)
	@$(UV_IS_HERE)
	"$(BIN)/python" tools/versions.py $(WHICH)

# The versions of all packages that `make test` installs, on every Python that we support, into requirements-dev.lock.
lock: $(STAMP)
	@$(UV_IS_HERE)
	"$(BIN)/uv" pip compile --quiet --universal --upgrade --python-version 3.11 --no-header --no-annotate \
		--extra dev pyproject.toml -o requirements-dev.lock

# uv, of the extra `release`, and packages for it: a dry run asks for what builds the wheel.
UV_IS_HERE = { [ -x "$(BIN)/uv" ] || { $(call install,release); }; } 2>/dev/null \
	&& "$(BIN)/uv" pip install --quiet --dry-run --python "$(BIN)/python" "hatchling>=1.26" 2>/dev/null

# Versions are those of the lock file, so that a new release turns no checkout red; where they are not to be had, the newest.
$(STAMP): pyproject.toml requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rackplan needs Python 3.11 or newer: make PYTHON=python3.12 ...")'
	@echo "Setting up $(VENV) (once) ..."
	@$(PYTHON) -m venv "$(VENV)" 2>/dev/null || $(PYTHON) -m venv --clear --without-pip "$(VENV)"
	@{ $(call install,dev,-c requirements-dev.lock); } 2>/dev/null || { $(call install,dev); }
	@touch "$(STAMP)"

clean:
	rm -rf "$(VENV)" out site dist .mypy_cache .ruff_cache .pytest_cache
