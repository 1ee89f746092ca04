# statelake as an image: `docker build --target slim .`, or `--target spark` with Java and Spark.
ARG PYTHON_IMAGE=python:3.12-slim-bookworm@sha256:782412e85d0f0984994c290652577d4018aff08145c85b262bb63dc0c7522254

FROM ${PYTHON_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /source
COPY . .
RUN python -m venv /opt/statelake \
  && /opt/statelake/bin/pip install --constraint constraints.txt '.[flink,hdfs,kafka]'

FROM build AS build-spark
RUN /opt/statelake/bin/pip install --constraint constraints.txt '.[connect]'

FROM ${PYTHON_IMAGE} AS slim
COPY --from=build /opt/statelake /opt/statelake
RUN useradd --uid 10001 --create-home statelake
USER 10001
WORKDIR /home/statelake
ENV PATH=/opt/statelake/bin:$PATH
RUN statelake warm
ENTRYPOINT ["statelake"]

FROM ${PYTHON_IMAGE} AS spark
# the version of Debian's package follows from the image's digest
# hadolint ignore=DL3008
RUN apt-get update \
  && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --uid 10001 --create-home statelake
COPY --from=build-spark /opt/statelake /opt/statelake
USER 10001
WORKDIR /home/statelake
ENV PATH=/opt/statelake/bin:$PATH
RUN statelake warm
ENTRYPOINT ["statelake"]
