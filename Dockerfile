# tuner in a container, with the build of torch that the argument names:
#   docker build -t tuner .                                                      torch for CUDA, as pip finds it
#   docker build -t tuner --build-arg TORCH_INDEX=URL .                          another build, such as the one for CPUs
#   docker run --gpus all --ipc host -v "$PWD:/work" tuner optimize --study reference
ARG PYTHON=3.12
FROM python:${PYTHON}-slim
ARG TORCH_INDEX=
ARG EXTRAS=dashboard,postgresql,reference,report,slurm
COPY constraints.txt pyproject.toml README.md LICENSE /src/
COPY tuner /src/tuner
COPY studies /src/studies
RUN pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$(grep '^torch==' /src/constraints.txt)" \
 && pip install --no-cache-dir --constraint /src/constraints.txt "/src[$EXTRAS]"
WORKDIR /work
ENTRYPOINT ["tuner"]
