# Built in one stage and run in another, so the image has no build tools in it.
FROM python:3.12-slim AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1
RUN python -m venv /opt/confidant
WORKDIR /src

# The dependencies first: they change rarely, so this layer is kept. PostgreSQL's, Matrix's and Slack's
# are among them.
COPY requirements-extras.lock ./
RUN /opt/confidant/bin/python -m pip install --require-hashes -r requirements-extras.lock

COPY pyproject.toml README.md LICENSE ./
COPY bot bot
COPY adapters adapters
COPY config/workspace config/workspace
RUN /opt/confidant/bin/python -m pip install --no-deps --no-build-isolation .


FROM python:3.12-slim

# Any user may run it and make its own private folder in here: `docker run --user 1000:1000`.
RUN install -d -o 10001 -g 10001 -m 1777 /data

COPY --from=build /opt/confidant /opt/confidant

# Inside a container 127.0.0.1 is reachable by nobody; listening on 0.0.0.0 needs a token, which
# CONFIDANT_DASHBOARD__TOKEN gives. Without one the bot refuses to start and says so.
ENV PATH=/opt/confidant/bin:$PATH \
    HOME=/data \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    CONFIDANT_LOG__FORMAT=json \
    TYPED_AS="docker exec -it {hostname} confidant" \
    CONFIDANT_STORAGE__DIR=/data/confidant \
    CONFIDANT_DASHBOARD__HOST=0.0.0.0 \
    CONFIDANT_DASHBOARD__PORT=8420 \
    CONFIDANT_CHANNELS__TELEGRAM__WEBHOOK_HOST=0.0.0.0 \
    CONFIDANT_CHANNELS__NEXTCLOUD_TALK__WEBHOOK_HOST=0.0.0.0

USER 10001:10001
WORKDIR /data
VOLUME /data
# The page, Telegram's webhook, Nextcloud Talk's.
EXPOSE 8420 8421 8422
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as http; http.urlopen('http://127.0.0.1:' + os.environ['CONFIDANT_DASHBOARD__PORT'] + '/healthz', timeout=4)"]

ENTRYPOINT ["confidant"]
CMD ["run"]
