"""The C++ of Outrider: a decoder for CPUs, the draw, draft models' trees and suffix automata.

`source` holds the C++; its `outrider_native.h` declares the whole interface with Python. `compiler` compiles it when
Outrider is installed, for several levels of x86-64 or ARM64; `presence` says whether there is compiled code, and
`library` loads the quickest library that the CPU runs.

Run operator by operator, a small model's step on a CPU spends most of its time between operators. Here a step is one
call, which releases Python's lock. A row's bits depend only on the tokens that the row sees: products sum over the
input features in their order whatever the number of rows, attention over fixed blocks of absolute positions.
"""
