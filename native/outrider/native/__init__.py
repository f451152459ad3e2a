"""The C++ of Outrider: a decoder for CPUs, the draw, draft models' trees and suffix automata.

`source` holds the C++, and in `outrider_native.h` all that crosses to Python. `compiler` compiles it when Outrider is
installed, for each level of x86-64 that matters; `presence` says what was compiled, and `library` loads the best that
the CPU runs.

An operator at a time, a small model's step on a CPU is mostly the way from one operator to the next. Here a step is one
call, which holds no lock of Python's. A row's bits depend on nothing but what it sees: products sum over the input
features in their order whatever the number of rows, attention over fixed blocks of absolute positions.
"""
