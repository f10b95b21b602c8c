# A Kafka image for machines that can't pull apache/kafka: the jars of the embedded broker, pinned
# in ops/kafka/jars.lock, behind the same environment variables. Built by containers.sh only.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
COPY jars /opt/kafka/libs
COPY kafka-entry.sh /opt/kafka/entry.sh
EXPOSE 9092
ENTRYPOINT ["bash", "/opt/kafka/entry.sh"]
