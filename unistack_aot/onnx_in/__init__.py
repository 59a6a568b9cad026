"""ONNX models to AICF graphs: files, types, scopes, opsets, coverage.

Not here: what an operator means (ops/).
"""

from unistack_aot.onnx_in.coverage import Gap, coverage
from unistack_aot.onnx_in.importer import Imported, import_model

__all__ = ["Gap", "Imported", "coverage", "import_model"]
