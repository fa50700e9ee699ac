"""Run programs that nobody trusts: limits on everything, no network, whole process trees killed.

`pool` is what others use, with the words of `program`. A `slot` is the parent's side of one `zygote`, a bare
interpreter in namespaces of its own that forks an `init` for each program, which forks the `harness` that
runs it. What runs there (`zygote`, `init`, `harness`, `root`, `processes`, `kernel`, `seccomp`, `values`,
`wire`) imports the standard library only, so this file stays empty.
"""
