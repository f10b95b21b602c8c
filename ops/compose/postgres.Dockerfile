# A PostgreSQL 15 image for machines that can't pull postgres:15; BASE_IMAGE has Debian's package.
# Built by containers.sh only.
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data
COPY postgres-entry.sh /usr/local/bin/postgres-entry.sh
RUN install -d -m 700 -o postgres -g postgres "$PGDATA"
USER postgres
EXPOSE 5432
STOPSIGNAL SIGINT
ENTRYPOINT ["bash", "/usr/local/bin/postgres-entry.sh"]
