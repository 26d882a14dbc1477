"""The flags of `tpu_vm.py`."""

from absl import flags
from tpu_slice import CONNECTIONS, EXTERNAL, Slice

NEVER, DONE, ENDED = DELETE_WHEN = ("never", "done", "ended")

NAME = flags.DEFINE_string("name", "azr", "Name of the slice.")
PROJECT = flags.DEFINE_string("project", "", "Google Cloud project to bill.")
ZONE = flags.DEFINE_string("zone", "us-west4-a", "Zone of the slice.")
ACCELERATOR = flags.DEFINE_string(
  "accelerator", "v5litepod-64", "v5litepod-N, v5p-N, v6e-N or v4-N."
)
SPOT = flags.DEFINE_bool(
  "spot", False, "Rent a spot slice: cheaper, but it may be preempted."
)
RESERVED = flags.DEFINE_bool(
  "reserved", False, "Use a reservation of the project."
)
RUNTIME = flags.DEFINE_string(
  "runtime", "", "Software version. Default: the accelerator's usual one."
)
SERVICE_ACCOUNT = flags.DEFINE_string(
  "service_account", "", "Service account of the machines."
)
NETWORK = flags.DEFINE_string("network", "", "Network of the machines.")
SUBNETWORK = flags.DEFINE_string(
  "subnetwork", "", "Subnetwork of the machines."
)
CONNECT = flags.DEFINE_enum(
  "connect",
  EXTERNAL,
  CONNECTIONS,
  "How ssh reaches the machines: external (they have external addresses), iap "
  "(through IAP's tunnel) or internal (from a machine in their network).",
)
LABELS = flags.DEFINE_string(
  "labels", "", "KEY=VALUE,... labels, to split bills by."
)
MAX_RUN = flags.DEFINE_string(
  "max_run_duration",
  "",
  "Google Cloud deletes the slice after this time, such as 8h (flex-start).",
)
VALID_UNTIL = flags.DEFINE_string(
  "valid_until_duration",
  "",
  "The request expires if it is not granted in this time, such as 12h.",
)
CREATE_FLAGS = flags.DEFINE_multi_string(
  "create_flag",
  [],
  "Another flag of `gcloud compute tpus queued-resources create`, such as "
  "--create_flag=--tags=ssh; may be repeated.",
)
BUCKET = flags.DEFINE_string(
  "bucket", "", "Bucket of the workdir, without gs://."
)
PASS_ENV = flags.DEFINE_list(
  "pass_env",
  [],
  "Variables of this shell to pass to the run, such as HF_TOKEN,WANDB_API_KEY,"
  "LIBTPU_INIT_ARGS. They are sent over ssh's input and never stored.",
)
WEIGHTS = flags.DEFINE_string(
  "weights",
  "",
  "hf:OWNER/NAME: one machine copies these weights to the bucket, and the run "
  "reads its model from there.",
)
DELETE = flags.DEFINE_enum(
  "delete_when",
  NEVER,
  DELETE_WHEN,
  "When `up` deletes the slice: never; done, once the run is done; or ended, "
  "once it is done or has failed for good.",
)
WORKER = flags.DEFINE_integer("worker", 0, "Worker whose log `logs` follows.")
RESTARTS = flags.DEFINE_integer(
  "restarts", 3, "How often `up` restarts a run that fails."
)
POLL_S = flags.DEFINE_float("poll_s", 60.0, "Seconds between checks.")
CHECK_JOB = flags.DEFINE_bool(
  "check_job",
  True,
  "Check the run's flags and config on this machine before requesting "
  "anything.",
)
DRY_RUN = flags.DEFINE_bool(
  "dry_run", False, "Print the commands without running them."
)


def read_slice() -> Slice:
  """Returns the slice that the flags describe.

  Raises:
    ValueError: Google Cloud would reject a value.
  """
  tpu = Slice(
    name=NAME.value,
    project=PROJECT.value,
    zone=ZONE.value,
    accelerator=ACCELERATOR.value,
    spot=SPOT.value,
    reserved=RESERVED.value,
    runtime=RUNTIME.value,
    service_account=SERVICE_ACCOUNT.value,
    network=NETWORK.value,
    subnetwork=SUBNETWORK.value,
    connect=CONNECT.value,
    labels=LABELS.value,
    max_run_duration=MAX_RUN.value,
    valid_until_duration=VALID_UNTIL.value,
    create_flags=tuple(CREATE_FLAGS.value),
  )
  tpu.check()
  return tpu
