"""The embedded broker: Apache Kafka 4.1 in KRaft mode, one node, on this machine only."""
