"""The forward pass and the sampler as one compiled call a step; built on first use, never required.

Why: a step of a small model is hundreds of calls of torch, each of a few microseconds, and its attention
copies what it need not. Here a step is one call without the interpreter's lock.

Exactness by construction: each number of a matrix product is one chain of multiply-adds over the inner
dimension in one lane; attention works on one query at a time, its scores laid out by absolute position.
So a row's bits depend on its own prefix only: not on the batch, the chunks of a prefill, pages or threads.

Where no C compiler is found the engine runs `rollwright.engine.forward` (torch) instead and says so.
"""
