"""The sampler: continuous batching over pages, with tools and partial rollouts.

  Policy.sample(prompts, n)                                      policy.py
    |  one Request per prompt: its n sequences share key and number
    v
  Stream  submit -> futures; send, fetch                         stream.py
    |
    v
  Scheduler                                                      scheduler.py
    queue -> group -> slot -> ended      the stages of a sequence
      ^        |       |  ^
      |     prefill  decode  tool output
      +-- preempted ---+  +---- awaiting a tool
    |
    v
  Engine  prefill, decode, compact: jitted, pure                 engine.py

`sampler.py`, `build.py` and `layout.py` read section `rollout` of a config. All
other modules take the values they use, such as the sizes of device calls
(`shapes.py`).

sequence: one completion as it grows, with its tool outputs (`sequence.py`). Its
  tokens stay in the outputs of decode calls until they are read (`tokens.py`).
request: a prompt that is sampled n times (`sequence.py`).
group: sequences that wait for slots and share a prefilled prompt
  (`prefill_scheduler.py`).
stage: queued, in a group, resuming, running, awaiting a tool, or ended
  (`sequence_stages.py`).
slot: a row of the decode loop; it holds one sequence at a time (`slots.py`).
page: keys and values of `page_size` tokens, possibly shared by sequences
  (`page_pool.py`, `kv_cache.py`).
stream: accepts prompts while others decode (`stream.py`).
loop: runs the coroutines that await completions, between two device calls
  (`event_loop.py`).
weights: the one holder of the parameters that sampling reads (`weights.py`).

`admission.py` decides who gets a slot, `preemption.py` who loses pages.
`decode.py` and `steps.py` are the device side.
"""
