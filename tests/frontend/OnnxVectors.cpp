// Runs test vectors through the importer and the interpreter and compares the outputs.
// Prints how many are in scope and pass, and why the others do not.
//   onnx-vectors DATA [--passes FILE] [--write FILE] [--only NAME]
// DATA: the folder of libonnx-testdata, or a file of record_vectors.py.
// --passes: fails if a vector of the list does not pass any more.
#include "tests/frontend/VectorCheck.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

using namespace sluice;
using namespace sluice::test;
namespace fs = std::filesystem;

int main(int argc, char **argv) {
  if (argc < 2 || !fs::exists(argv[1])) {
    std::cout << "SKIPPED: no test vectors (package libonnx-testdata)\n";
    return 77;
  }
  std::string passes, write, only;
  for (int i = 2; i + 1 < argc; i += 2) {
    if (!std::strcmp(argv[i], "--passes"))
      passes = argv[i + 1];
    if (!std::strcmp(argv[i], "--write"))
      write = argv[i + 1];
    if (!std::strcmp(argv[i], "--only"))
      only = argv[i + 1];
  }
  std::map<std::string, VectorOutcome> outcomes;
  for (const VectorCase &test : readCases(argv[1], only))
    outcomes[test.name] = checkVector(test);
  size_t inScope = 0, passed = 0;
  std::ofstream list(write);
  for (auto &[name, outcome] : outcomes) {
    inScope += outcome.inScope;
    passed += outcome.passed;
    if (outcome.passed)
      list << name << "\n";
    else
      std::cout << (outcome.inScope ? "FAIL  " : "OUT   ") << name << ": "
                << outcome.reason << "\n";
  }
  std::cout << outcomes.size() << " vectors, " << inScope << " in scope, " << passed
            << " pass\n";
  int lost = 0;
  std::ifstream wanted(passes);
  for (std::string name; std::getline(wanted, name);)
    if (!outcomes[name].passed) {
      std::cout << "LOST  " << name << ": " << outcomes[name].reason << "\n";
      ++lost;
    }
  return lost ? 1 : 0;
}
