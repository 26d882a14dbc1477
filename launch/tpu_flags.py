"""The flags of `tpu_vm.py`."""

from absl import flags
from tpu_slice import CONNECTIONS, EXTERNAL, Slice

NEVER, DONE, ENDED = DELETE_WHEN = ("never", "done", "ended")

NAME = flags.DEFINE_string("name", "azr", "Name of the slice.")
PROJECT = flags.DEFINE_string("project", "", "Google Cloud project that pays.")
ZONE = flags.DEFINE_string("zone", "us-west4-a", "Zone of the slice.")
ACCELERATOR = flags.DEFINE_string(
  "accelerator", "v5litepod-64", "v5litepod-N, v5p-N, v6e-N or v4-N."
)
SPOT = flags.DEFINE_bool(
  "spot", False, "Rent a spot slice: cheaper, but it may be preempted."
)
RESERVED = flags.DEFINE_bool(
  "reserved", False, "Take the slice from a reservation of the project."
)
RUNTIME = flags.DEFINE_string(
  "runtime", "", 'Software version; "": the accelerator\'s usual one.'
)
SERVICE_ACCOUNT = flags.DEFINE_string(
  "service_account", "", "Service account of the machines."
)
NETWORK = flags.DEFINE_string("network", "", "Network of the machines.")
SUBNETWORK = flags.DEFINE_string("subnetwork", "", "Their subnetwork.")
CONNECT = flags.DEFINE_enum(
  "connect",
  EXTERNAL,
  CONNECTIONS,
  "How ssh reaches the machines: by external addresses; without, through IAP's "
  "tunnel; or without, from a machine of their network.",
)
LABELS = flags.DEFINE_string(
  "labels", "", "KEY=VALUE,..., by which bills are split."
)
MAX_RUN = flags.DEFINE_string(
  "max_run_duration",
  "",
  "Google Cloud deletes the slice after this time, such as 8h (flex-start).",
)
VALID_UNTIL = flags.DEFINE_string(
  "valid_until_duration",
  "",
  "The request ends unless it is granted in this time, such as 12h.",
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
  "Variables of this shell that the run gets, such as HF_TOKEN,WANDB_API_KEY,"
  "LIBTPU_INIT_ARGS. They are sent over ssh's input and written nowhere.",
)
WEIGHTS = flags.DEFINE_string(
  "weights",
  "",
  "hf:OWNER/NAME: one machine fetches these weights into the bucket, all read "
  "them there, and the run's model is the bucket's.",
)
DELETE = flags.DEFINE_enum(
  "delete_when",
  NEVER,
  DELETE_WHEN,
  "When `up` deletes the slice: never; once the run is done; or once it has "
  "ended, done or failed for good.",
)
WORKER = flags.DEFINE_integer("worker", 0, "Worker whose log `logs` follows.")
RESTARTS = flags.DEFINE_integer(
  "restarts", 3, "How often `up` restarts a run that fails."
)
POLL_S = flags.DEFINE_float("poll_s", 60.0, "Seconds between two checks.")
CHECK_JOB = flags.DEFINE_bool(
  "check_job",
  True,
  "Check the flags and the config of the run on this machine, before anything "
  "is requested.",
)
DRY_RUN = flags.DEFINE_bool(
  "dry_run", False, "Print the commands without running them."
)


def read_slice() -> Slice:
  """Returns the slice that the flags describe.

  Raises:
    ValueError: Google Cloud would refuse a value.
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
