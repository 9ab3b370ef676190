# One node of txha; docs/install.md says how it is used, compose.yaml runs three of them.
FROM debian:bookworm-slim AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates gcc libc6-dev python3-dev python3-venv
WORKDIR /build
COPY requirements-build.lock requirements-runtime.lock ./
RUN python3 -m venv /opt/txha \
    && /opt/txha/bin/python -m pip install --no-cache-dir --require-hashes -r requirements-runtime.lock
RUN python3 -m venv tools \
    && tools/bin/python -m pip install --no-cache-dir --require-hashes -r requirements-build.lock
COPY . source
RUN tools/bin/python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir wheel ./source \
    && /opt/txha/bin/python -m pip install --no-cache-dir --no-deps --no-index wheel/*.whl \
    && /opt/txha/bin/python -m pip uninstall --yes setuptools pip

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 10001 txha \
    && useradd --system --uid 10001 --gid txha --home-dir /var/lib/txha --no-create-home --shell /usr/sbin/nologin txha \
    && install -d -o txha -g txha -m 0700 /var/lib/txha /var/lib/txha/store /var/lib/txha/record
COPY --from=build /opt/txha /opt/txha
ENV PATH=/opt/txha/bin:/usr/local/bin:/usr/bin:/bin
USER 10001:10001
WORKDIR /var/lib/txha
VOLUME ["/var/lib/txha/store", "/var/lib/txha/record"]
EXPOSE 5672
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=30s --timeout=10s --start-period=60s \
    CMD ["txha", "status", "--config", "/etc/txha/node.toml", "--ready"]
ENTRYPOINT ["txha"]
CMD ["node", "--config", "/etc/txha/node.toml"]
