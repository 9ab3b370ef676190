#!/usr/bin/env bash
# Programs that some tests need beyond Python: found, or installed and said so, or one sentence and an error.
set -euo pipefail
missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v strace >/dev/null || missing+=(strace)
command -v ip >/dev/null || missing+=(iproute2)
command -v nft >/dev/null || missing+=(nftables)
compgen -G "/usr/lib/*/faketime/libfaketimeMT.so.1" >/dev/null || missing+=(faketime)
compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null || missing+=(postgresql-15)
[ -x "$(PATH=$PATH:/usr/sbin command -v pgbouncer)" ] || missing+=(pgbouncer)
[ -d /usr/lib/rabbitmq/bin ] || missing+=(rabbitmq-server)
command -v promtool >/dev/null || missing+=(prometheus)
command -v etcd >/dev/null || missing+=(etcd-server)
command -v etcdctl >/dev/null || missing+=(etcd-client)
command -v openssl >/dev/null || missing+=(openssl)
command -v java >/dev/null || missing+=(openjdk-17-jre-headless)
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "== installing for the tests: ${missing[*]}"
    export RUNLEVEL=1  # the packages' own services are not started
    apt-get install -y -qq "${missing[@]}" >/dev/null 2>&1 || { apt-get update -qq && apt-get install -y -qq "${missing[@]}" >/dev/null; }
else
    echo "The tests need ${missing[*]}; install them with your package manager and run make test again." >&2
    exit 1
fi
