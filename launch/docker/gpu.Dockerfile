# Training on NVIDIA GPUs. In the repository's root:
#
#   docker build -f launch/docker/gpu.Dockerfile -t azr_jax:gpu .
#   docker run --gpus=all --ipc=host -v /runs:/runs azr_jax:gpu azr_jax.train \
#       --config=configs/azr.py:qwen2.5-7b --workdir=/runs/azr
#
# JAX's wheels contain CUDA's libraries, so the image needs no CUDA, and the
# host only needs a driver and the NVIDIA container toolkit. Programs that a
# model writes run in the executor's own sandbox inside the container.
FROM python:3.12-slim-bookworm

ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    PYTHONUNBUFFERED=1 \
    HF_HOME=/runs/cache/huggingface

WORKDIR /opt/azr_jax
COPY setup.py pyproject.toml README.md LICENSE ./
COPY azr_jax ./azr_jax
COPY configs ./configs
# hadolint ignore=DL3013 # setup.py has the version ranges
RUN pip install --no-cache-dir '.[cuda,eval,gym,ray,scripts,serve,wandb]' \
    && rm -rf /opt/azr_jax

RUN useradd --create-home --uid 1000 azr && install -d -o azr /runs
USER 1000
WORKDIR /runs
ENTRYPOINT ["python", "-m"]
CMD ["azr_jax.train", "--help"]
