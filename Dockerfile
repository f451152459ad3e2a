# All of Outrider's images: docker build --target gateway|tokenizer|kvcache|proposer|verifier .
#
# A service is installed into a virtual environment in a stage of its own and only that is copied into its image.
# The gateway, the tokenizer and the KV cache come without torch, and without compiled code: they have no C++ compiler. TORCH_INDEX names another package index for torch, for one
# that has builds without CUDA, say.

FROM python:3.11-slim AS base
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


FROM base AS source
WORKDIR /source
RUN python3 -m venv /opt/outrider
COPY pyproject.toml hatch_build.py constraints.txt LICENSE README.md ./


FROM source AS gateway-build
RUN pip install --no-cache-dir -c constraints.txt '.[gateway]'
COPY . .
RUN pip install --no-cache-dir --no-deps --force-reinstall .


FROM base AS gateway
ENV OUTRIDER_GATEWAY_PORT=8080 \
    OUTRIDER_GATEWAY_GRPC_PORT=8081
COPY --from=gateway-build /opt/outrider /opt/outrider
USER outrider
EXPOSE 8080 8081
HEALTHCHECK --interval=3s --timeout=3s --start-period=120s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/readyz', timeout=2)"]
CMD ["python", "-m", "outrider.gateway"]


FROM source AS tokenizer-build
RUN pip install --no-cache-dir -c constraints.txt '.[tokenizer]'
COPY . .
RUN pip install --no-cache-dir --no-deps --force-reinstall .


FROM with-models AS tokenizer
COPY --from=tokenizer-build /opt/outrider /opt/outrider
USER outrider
CMD ["python", "-m", "outrider.tokenizer"]


FROM source AS kvcache-build
RUN pip install --no-cache-dir -c constraints.txt '.[kvcache]'
COPY . .
RUN pip install --no-cache-dir --no-deps --force-reinstall .


FROM base AS kvcache
COPY --from=kvcache-build /opt/outrider /opt/outrider
USER outrider
CMD ["python", "-m", "outrider.kvcache"]


FROM source AS engine-build
ARG TORCH_INDEX=
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -c constraints.txt '.[engine,tokenizer]'
COPY . .
RUN pip install --no-cache-dir --no-deps --force-reinstall .


FROM with-models AS proposer
COPY --from=engine-build /opt/outrider /opt/outrider
USER outrider
CMD ["python", "-m", "outrider.proposer"]


FROM with-models AS verifier
COPY --from=engine-build /opt/outrider /opt/outrider
USER outrider
CMD ["python", "-m", "outrider.verifier"]
