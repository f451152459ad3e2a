# All of Outrider's images: docker build --target gateway|tokenizer|kvcache|proposer|verifier .
#
# Packages are installed into a virtual environment in a stage of its own and only that is copied into an image. Each
# package has its version and its hashes in a lock (requirements/), and pip takes no other file. Outrider's own wheel,
# with compiled code, is built once for all images. The gateway, the tokenizer and the KV cache come without torch.
# All stages are for linux/amd64 and for linux/arm64; an image of the other kind compiles in an emulator, slowly.
#
#   --build-arg TORCH=cuda      torch from PyPI, with CUDA; by default the build for CPUs, from PyTorch's own index
#   --build-arg TORCH_INDEX=…   a mirror of that index
#   --build-arg PYTHON=python:3.11-slim@sha256:…      the base image by its digest

ARG PYTHON=python:3.11-slim

FROM ${PYTHON} AS base
ENV PATH=/opt/outrider/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    OUTRIDER_HOST=0.0.0.0 \
    OUTRIDER_METRICS_PORT=9090
RUN groupadd --gid 10001 outrider && useradd --uid 10001 --gid outrider --no-create-home --home-dir /tmp outrider
# A service that fetches its model may take long to get ready.
HEALTHCHECK --interval=3s --timeout=3s --start-period=3600s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9090/readyz', timeout=2)"]


# Models of the Hub and manifests are kept in /models: a volume there takes its owner from this directory.
FROM base AS with-models
ENV HF_HOME=/models/huggingface \
    XDG_CACHE_HOME=/models/cache
RUN mkdir /models && chown outrider:outrider /models
VOLUME /models


# Packages that PyPI has no wheel of are built with the locked setuptools.
FROM base AS environment
WORKDIR /source
ENV PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/outrider
COPY requirements/build.txt requirements/
RUN pip install --require-hashes -r requirements/build.txt


FROM environment AS wheel
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY . .
RUN python -m hatchling build -t wheel -d /dist


FROM environment AS gateway-build
COPY requirements/gateway.txt requirements/
RUN pip install --require-hashes --no-build-isolation -r requirements/gateway.txt
COPY --from=wheel /dist /dist
RUN pip install --no-index --no-deps /dist/*.whl && pip check


FROM base AS gateway
ENV OUTRIDER_GATEWAY_PORT=8080 \
    OUTRIDER_GATEWAY_GRPC_PORT=8081
# Volumes of `outrider credentials` take their owner from these directories.
RUN mkdir /secrets /credentials /store && cd /credentials \
    && mkdir gateway tokenizer proposer verifier kvcache admin broker && chown -R outrider:outrider /secrets . /store
COPY --from=gateway-build /opt/outrider /opt/outrider
USER outrider
EXPOSE 8080 8081
HEALTHCHECK --interval=3s --timeout=3s --start-period=3600s --retries=3 \
    CMD ["python", "-c", "import os, ssl, urllib.request as r; tls = 's' * bool(os.getenv('OUTRIDER_GATEWAY_DOOR_CERTIFICATE')); r.urlopen(f'http{tls}://127.0.0.1:8080/readyz', timeout=2, context=ssl._create_unverified_context())"]
CMD ["python", "-m", "outrider.gateway"]


FROM environment AS tokenizer-build
COPY requirements/tokenizer.txt requirements/
RUN pip install --require-hashes --no-build-isolation -r requirements/tokenizer.txt
COPY --from=wheel /dist /dist
RUN pip install --no-index --no-deps /dist/*.whl && pip check


FROM with-models AS tokenizer
COPY --from=tokenizer-build /opt/outrider /opt/outrider
USER outrider
CMD ["python", "-m", "outrider.tokenizer"]


FROM environment AS kvcache-build
COPY requirements/kvcache.txt requirements/
RUN pip install --require-hashes --no-build-isolation -r requirements/kvcache.txt
COPY --from=wheel /dist /dist
RUN pip install --no-index --no-deps /dist/*.whl && pip check


FROM base AS kvcache
COPY --from=kvcache-build /opt/outrider /opt/outrider
USER outrider
CMD ["python", "-m", "outrider.kvcache"]


FROM environment AS engine-build
ARG TORCH=cpu
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY requirements/engine.txt requirements/torch-${TORCH}.txt requirements/
RUN pip install --require-hashes --no-build-isolation -r requirements/engine.txt
RUN pip install --require-hashes --no-deps --extra-index-url "$TORCH_INDEX" -r requirements/torch-${TORCH}.txt
COPY --from=wheel /dist /dist
RUN pip install --no-index --no-deps /dist/*.whl && pip check
# Triton launches kernels through a library that it compiles; images get it compiled, and no compiler.
RUN mkdir /opt/outrider/launcher && if [ "$TORCH" = cuda ]; then \
    apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/* \
    && python -m outrider.kernels.host_library /opt/outrider/launcher; fi


FROM with-models AS engine
ENV OUTRIDER_LAUNCHER=/opt/outrider/launcher \
    TRITON_CACHE_MANAGER=outrider.kernels.host_library:Cache
COPY --from=engine-build /opt/outrider /opt/outrider
USER outrider


FROM engine AS proposer
CMD ["python", "-m", "outrider.proposer"]


FROM engine AS verifier
CMD ["python", "-m", "outrider.verifier"]
