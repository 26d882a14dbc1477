# A node that verifies programs for runs on other machines. From the root:
#
#   docker build -f launch/docker/executor.Dockerfile -t azr_jax:executor .
#   docker run --network=host azr_jax:executor --head --port=6379
#   docker run --network=host azr_jax:executor --address=HEAD:6379
#
# A run joins by `ray start --address=HEAD:6379 --num-cpus=0`, and is given
# `--config.executor.backend=ray --config.executor.address=HEAD:6379`. It must
# have this image's minor version of Python, and the same version of Ray:
# `--build-arg RAY=2.60.0`. The executor needs the standard library alone, so
# JAX is not installed.
# `docker run azr_jax:executor` with `--entrypoint python`, then
# `-m azr_jax.executor --doctor`, says which layers of the sandbox there are.
ARG PYTHON=3.12
FROM python:${PYTHON}-slim-bookworm

ARG RAY=2.60.0
ENV PYTHONUNBUFFERED=1

WORKDIR /opt/azr_jax
COPY setup.py pyproject.toml README.md LICENSE ./
COPY azr_jax ./azr_jax
COPY configs ./configs
# What scripts of the Code Interpreter may import comes with the last three.
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
