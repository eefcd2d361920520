# lit configuration of the .mlir tests; ctest passes the build folder.
import os

import lit.formats

config.name = "sluice"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test"]
config.excludes = ["inputs"]
config.test_source_root = os.path.dirname(__file__)
build = lit_config.params["build"]
config.test_exec_root = os.path.join(build, "tests", "lit")
llvm_tools = lit_config.params.get("llvm_tools", "/usr/lib/llvm-19/bin")
config.environment["PATH"] = os.pathsep.join(
    [os.path.join(build, "tools"), llvm_tools, os.environ["PATH"]])
