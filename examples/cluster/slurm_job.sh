#!/bin/bash
# One worker of a study as a batch job: sbatch examples/cluster/slurm_job.sh reference
# `tuner optimize --launcher slurm` writes and submits such jobs itself.
#SBATCH --job-name=tuner
#SBATCH --ntasks=1
#SBATCH --gpus-per-task=8
#SBATCH --cpus-per-task=64
#SBATCH --mem=400G
#SBATCH --time=04:00:00
#SBATCH --signal=B:TERM@60
set -euo pipefail
study=${1:?name a study}
source .venv/bin/activate
tuner worker --study "$study" & # in the background, so that the shell hears SLURM's signal
trap 'kill -TERM $!' TERM
wait $! || wait $! # again after the signal: the worker stores what it knows
