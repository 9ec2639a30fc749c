# Built in one stage and run in another, so the image has no build tools in it.
FROM python:3.12-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
RUN python -m venv /opt/confidant
WORKDIR /src

# The dependencies first: they change rarely, so this layer is kept.
# Many nodes on one PostgreSQL need requirements-cluster.lock instead.
ARG REQUIREMENTS=requirements.lock
COPY requirements.lock requirements-cluster.lock ./
RUN /opt/confidant/bin/python -m pip install --require-hashes -r ${REQUIREMENTS}

COPY pyproject.toml README.md LICENSE ./
COPY bot bot
COPY adapters adapters
COPY config/workspace config/workspace
RUN /opt/confidant/bin/python -m pip install --no-deps --no-build-isolation .


FROM python:3.12-slim

# A fixed number, so that files in the volume keep their owner from one image to the next.
RUN groupadd --gid 10001 confidant \
    && useradd --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin confidant \
    && install -d -o confidant -g confidant -m 700 /data

COPY --from=build /opt/confidant /opt/confidant

# Inside a container 127.0.0.1 is reachable by nobody; listening on 0.0.0.0 needs a token, which
# CONFIDANT_DASHBOARD__TOKEN gives. Without one the bot refuses to start and says so.
ENV PATH=/opt/confidant/bin:$PATH \
    HOME=/data \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CONFIDANT_LOG__FORMAT=json \
    TYPED_AS="docker exec -it {hostname} confidant" \
    CONFIDANT_STORAGE__DIR=/data \
    CONFIDANT_DASHBOARD__HOST=0.0.0.0 \
    CONFIDANT_CHANNELS__TELEGRAM__WEBHOOK_HOST=0.0.0.0 \
    CONFIDANT_CHANNELS__NEXTCLOUD_TALK__WEBHOOK_HOST=0.0.0.0

USER 10001:10001
WORKDIR /data
VOLUME /data
# The page, Telegram's webhook, Nextcloud Talk's.
EXPOSE 8420 8421 8422
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as http; http.urlopen('http://127.0.0.1:' + os.environ.get('CONFIDANT_DASHBOARD__PORT', '8420') + '/healthz', timeout=4)"]

ENTRYPOINT ["confidant"]
CMD ["run"]
