#!/usr/bin/env bash
# KAFKA_SOME_KEY=value becomes some.key=value, as in apache/kafka; then the node is formatted
# unless it was, and runs as this process.
set -euo pipefail
properties=/opt/kafka/server.properties
while IFS='=' read -r name value; do
  case "$name" in
    KAFKA_HEAP_OPTS) ;;
    KAFKA_*) name=${name#KAFKA_} name=${name,,} && echo "${name//_/.}=$value" ;;
  esac
done < <(env) > "$properties"
log_dir=$(sed -n 's/^log.dirs=//p' "$properties")
[ -n "$log_dir" ] || { log_dir=/tmp/kraft-combined-logs && echo "log.dirs=$log_dir" >> "$properties"; }
# shellcheck disable=SC2086  # options, several words
java=(java ${KAFKA_HEAP_OPTS:--Xmx512m} -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError
  -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -cp '/opt/kafka/libs/*')
[ -f "$log_dir/meta.properties" ] ||
  "${java[@]}" kafka.tools.StorageTool format -t "${CLUSTER_ID:-rowmillrowmillrowmillr}" -c "$properties"
exec "${java[@]}" kafka.Kafka "$properties"
