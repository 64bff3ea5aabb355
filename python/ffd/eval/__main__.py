# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`python -m ffd.eval`"""

import os
import sys

# Methods run in processes of their own; BLAS threads would only fight over the
# cores. Read by numpy's BLAS when it is loaded.
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from .cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
