#pragma once
// What reads one spec: each section of the file is a method, kept with its like in a
// file of this folder. Every problem is noted and reading goes on.

#include "frontend/SpecReader.h"

#include <string>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace sluice {

class Reader {
public:
  explicit Reader(std::string file) : file(std::move(file)) {}

  SpecResult result;
  TrainingSpec spec;

  void error(const YAML::Node &at, const std::string &message) {
    result.errors.push_back(placeOf(at.Mark(), message) + ": " + message);
  }
  /// The value of an override (--set KEY=VALUE), marked so that errors name that.
  YAML::Node loadOverride(const std::string &assignment);

  void checkKeys(const YAML::Node &node, const std::string &path);
  void translate(YAML::Node root);
  void translateOptim(YAML::Node root);
  void fill(const YAML::Node &root);

private:
  std::string placeOf(const YAML::Mark &mark, const std::string &message) const;

  template <typename T>
  void read(const YAML::Node &parent, const char *key, T &into, const char *expected) {
    YAML::Node node = parent[key];
    if (!node)
      return;
    try {
      into = node.as<T>();
    } catch (const YAML::Exception &) {
      error(node,
            "'" + std::string(key) + "' is '" + text(node) + "', expected " + expected);
    }
  }
  template <typename T>
  void read(const YAML::Node &parent, const char *key, std::optional<T> &into,
            const char *expected) {
    if (!parent[key])
      return;
    T value{};
    size_t before = result.errors.size();
    read(parent, key, value, expected);
    if (result.errors.size() == before)
      into = value;
  }
  static std::string text(const YAML::Node &node) {
    return node.IsScalar()     ? node.Scalar()
           : node.IsSequence() ? "a list"
           : node.IsMap()      ? "a map"
                               : "nothing";
  }
  bool oneOf(const YAML::Node &node, const std::string &value,
             std::initializer_list<const char *> known,
             std::initializer_list<const char *> later, const std::string &key);
  void number(const YAML::Node &parent, const char *key, double &into, double low,
              double high);
  void count(const YAML::Node &parent, const char *key, int64_t &into, int64_t low);

  void readShapes(const YAML::Node &node);
  void readBucket(const YAML::Node &node, ShapeBucket &bucket);
  void nameBuckets(const YAML::Node &node);
  void readPad(const YAML::Node &node);
  void readValues(const YAML::Node &node);
  void readInit(const YAML::Node &node);
  void readGain(const YAML::Node &node, InitRule &rule);
  void readInitRule(const YAML::Node &node, InitRule rule);
  void readLoss(const YAML::Node &node);
  void readOptimizer(const YAML::Node &node);
  bool isOptimizer(const YAML::Node &at, const std::string &kind, const std::string &key);
  void readOptimizerKeys(const YAML::Node &node, const std::string &path,
                         OptimizerSpec &optimizer);
  void checkOptimizer(const YAML::Node &node, const OptimizerSpec &optimizer);
  void readGroupKeys(const YAML::Node &entry, const std::vector<std::string> &kinds,
                     ParameterGroupSpec &group);
  void readCtc(const YAML::Node &node);
  void readTriplet(const YAML::Node &node);
  void checkLossKeys(const YAML::Node &node);
  void readLora(const YAML::Node &node);
  void readLoraRule(const YAML::Node &node);
  void readScheduleTable(const YAML::Node &node);
  void checkSchedule(const YAML::Node &node);
  void readBetas(const YAML::Node &node, double &beta1, double &beta2);
  void readGroups(const YAML::Node &node);
  void readSchedule(const YAML::Node &node);
  void readChanges(const YAML::Node &node);
  void readAccumulate(const YAML::Node &node);
  void readClip(const YAML::Node &node);
  void checkClipKeys(const YAML::Node &node);
  void readSpikes(const YAML::Node &node);
  void readOutliers(const YAML::Node &node);
  void checkHealth(const YAML::Node &root);
  void readRecompute(const YAML::Node &node);
  void readLadder(const YAML::Node &memory);
  void readRegions(const YAML::Node &memory);
  void readMemory(const YAML::Node &node);
  void readUpdate(const YAML::Node &node);
  void checkGroupName(const YAML::Node &entry, const std::string &name);
  void readGrouping(const YAML::Node &node);
  void readMode(const YAML::Node &node, UpdateMode &mode);
  void readCompensation(const YAML::Node &node);
  void readFlush(const YAML::Node &node);
  void readContinual(const YAML::Node &node);
  void checkContinual(const YAML::Node &root);
  void readMasks(const YAML::Node &node);
  void checkMasks(const YAML::Node &root);
  void readEwc(const YAML::Node &node);
  void readFisher(const YAML::Node &node);
  void readOnline(const YAML::Node &node);
  void readSi(const YAML::Node &node);
  void readReplay(const YAML::Node &node);
  void checkReplay(const YAML::Node &root);
  void readImportanceStorage(const YAML::Node &node, const std::string &key);
  void readParallel(const YAML::Node &node);
  void readComm(const YAML::Node &node);
  void readPrecision(const YAML::Node &node);
  void readMaster(const YAML::Node &node);
  void readRules(const YAML::Node &node);
  void readRule(const YAML::Node &node);
  void readStorage(const YAML::Node &node, StorageRule &rule);
  void checkFormat(const YAML::Node &node, const std::string &name,
                   const std::string &key);
  void checkMoments(const YAML::Node &node, const std::string &name,
                    const std::string &key);
  void checkKeep(const YAML::Node &node);
  void readPolicy(const YAML::Node &node);
  void readPolicyBudget(const YAML::Node &node);
  void readLossScale(const YAML::Node &node);
  void powerOfTwo(const YAML::Node &parent, const char *key, double &into, double low,
                  double high);
  void readTies(const YAML::Node &node);
  void readEntries(const YAML::Node &node);

  std::string file;
  /// In the order given; the value of the i-th is on line overrideLine + i.
  std::vector<std::string> overrides;
  static constexpr int overrideLine = 1 << 20;
};

} // namespace sluice
