# A node that verifies programs for runs on other machines. In the repository's
# root:
#
#   docker build -f launch/docker/executor.Dockerfile -t azr_jax:executor .
#   docker run --network=host azr_jax:executor --head --port=6379
#   docker run --network=host azr_jax:executor --address=HEAD:6379
#
# A run joins with `ray start --address=HEAD:6379 --num-cpus=0` and the flags
# `--config.executor.backend=ray --config.executor.address=HEAD:6379`. It needs
# this image's minor version of Python and version of Ray (`--build-arg
# RAY=2.60.0`). The executor only needs the standard library, so JAX is not
# installed. This lists the available sandbox layers:
#
#   docker run --entrypoint python azr_jax:executor -m azr_jax.executor --doctor
ARG PYTHON=3.12
FROM python:${PYTHON}-slim-bookworm

ARG RAY=2.60.0
ENV PYTHONUNBUFFERED=1

WORKDIR /opt/azr_jax
COPY setup.py pyproject.toml README.md LICENSE ./
COPY azr_jax ./azr_jax
COPY configs ./configs
# The last three packages are libraries for scripts of the Code Interpreter.
RUN pip install --no-cache-dir --no-deps . \
    && pip install --no-cache-dir "ray==${RAY}" 'networkx>=3.2' 'pandas>=2.2' \
       'sympy>=1.12' \
    && rm -rf /opt/azr_jax

RUN useradd --create-home --uid 1000 azr
USER 1000
WORKDIR /home/azr
ENTRYPOINT ["ray", "start", "--block", "--disable-usage-stats", \
            "--object-store-memory=100000000"]
CMD ["--head", "--port=6379"]
