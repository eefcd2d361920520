#include "runtime/data/Metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

using namespace sluice;

namespace {

struct Rows {
  std::vector<float> logits;
  std::vector<int64_t> labels;
};

/// Logits on a coarse grid, so that ties are common.
Rows randomRows(std::mt19937 &rng, int64_t rows, int64_t classes, int64_t labelClasses) {
  Rows result;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < classes; ++c)
      result.logits.push_back(float(int(rng() % 9) - 4) / 2);
    result.labels.push_back(int64_t(rng() % uint64_t(labelClasses)));
  }
  return result;
}

TEST(Metrics, AucEqualsCountingAllPairs) {
  std::mt19937 rng(1);
  for (int round = 0; round < 20; ++round) {
    Rows rows = randomRows(rng, 60, 1, 2);
    Metrics metrics({.classes = 1});
    ASSERT_TRUE(metrics.add(rows.logits.data(), rows.labels.data(), 60));
    double wins = 0, pairs = 0;
    for (size_t p = 0; p < 60; ++p)
      for (size_t n = 0; n < 60; ++n)
        if (rows.labels[p] == 1 && rows.labels[n] == 0) {
          ++pairs;
          wins += rows.logits[p] > rows.logits[n]    ? 1
                  : rows.logits[p] == rows.logits[n] ? 0.5
                                                     : 0;
        }
    ASSERT_TRUE(metrics.auc().has_value());
    EXPECT_DOUBLE_EQ(*metrics.auc(), wins / pairs);
  }
}

TEST(Metrics, AucOfPerfectAndReversedScores) {
  std::vector<int64_t> labels = {0, 0, 1, 1};
  std::vector<float> good = {1, 2, 3, 4}, bad = {4, 3, 2, 1}, flat = {1, 1, 1, 1};
  for (auto [scores, expected] :
       {std::pair(good, 1.0), std::pair(bad, 0.0), std::pair(flat, 0.5)}) {
    Metrics metrics({.classes = 1});
    metrics.add(scores.data(), labels.data(), 4);
    EXPECT_EQ(metrics.auc(), expected);
  }
}

TEST(Metrics, AucNeedsBothClasses) {
  Metrics metrics({.classes = 1});
  std::vector<float> scores = {1, 2};
  std::vector<int64_t> labels = {1, 1};
  metrics.add(scores.data(), labels.data(), 2);
  EXPECT_EQ(metrics.auc(), std::nullopt);
}

TEST(Metrics, RecallAtPrecisionAndAtARateEqualTryingAllThresholds) {
  std::mt19937 rng(3);
  for (int round = 0; round < 20; ++round) {
    Rows rows = randomRows(rng, 60, 1, 2);
    Metrics metrics({.classes = 1});
    ASSERT_TRUE(metrics.add(rows.logits.data(), rows.labels.data(), 60));
    for (double share : {0.0, 0.3, 0.55, 0.7, 1.0}) {
      double atPrecision = 0, atRate = 0;
      for (float threshold = -2.5; threshold < 4; threshold += 0.5) {
        double found = 0, wrong = 0, positives = 0, negatives = 0;
        for (size_t i = 0; i < 60; ++i) {
          bool isTaken = rows.logits[i] >= threshold;
          (rows.labels[i] ? positives : negatives) += 1;
          (rows.labels[i] ? found : wrong) += isTaken;
        }
        if (found > 0 && found / (found + wrong) >= share)
          atPrecision = std::max(atPrecision, found / positives);
        if (wrong / negatives <= share)
          atRate = std::max(atRate, found / positives);
      }
      EXPECT_DOUBLE_EQ(*metrics.recallAtPrecision(share), atPrecision) << share;
      EXPECT_DOUBLE_EQ(*metrics.recallAtFalsePositiveRate(share), atRate) << share;
    }
  }
}

TEST(Metrics, RecallAtARateNeedsAPositive) {
  Metrics metrics({.classes = 1}), three({.classes = 3});
  std::vector<float> scores = {1, 2, 3};
  std::vector<int64_t> labels = {0, 0, 0};
  metrics.add(scores.data(), labels.data(), 3);
  EXPECT_EQ(metrics.recallAtPrecision(0.5), std::nullopt);
  EXPECT_EQ(metrics.recallAtFalsePositiveRate(0.5), std::nullopt);
  three.add(scores.data(), labels.data(), 1);
  EXPECT_EQ(three.recallAtPrecision(0.5), std::nullopt);
}

TEST(Metrics, EqualBruteForceOverRandomBatches) {
  std::mt19937 rng(2);
  constexpr int64_t classes = 6;
  Metrics metrics({.classes = classes, .topK = 3});
  std::vector<std::vector<int64_t>> confusion(classes, std::vector<int64_t>(classes, 0));
  int64_t count = 0, correct = 0, inTop = 0;
  for (int batch = 0; batch < 10; ++batch) {
    Rows rows = randomRows(rng, 17, classes, classes - 1); // class 5 is only predicted
    ASSERT_TRUE(metrics.add(rows.logits.data(), rows.labels.data(), 17));
    for (int64_t r = 0; r < 17; ++r) {
      const float *row = rows.logits.data() + r * classes;
      std::vector<int64_t> order(classes);
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return row[a] != row[b] ? row[a] > row[b] : a < b;
      });
      int64_t label = rows.labels[size_t(r)];
      ++count;
      correct += order[0] == label;
      inTop += std::count(order.begin(), order.begin() + 3, label);
      ++confusion[size_t(label)][size_t(order[0])];
    }
  }
  EXPECT_EQ(metrics.count(), count);
  EXPECT_DOUBLE_EQ(metrics.accuracy(), double(correct) / double(count));
  EXPECT_DOUBLE_EQ(metrics.topKAccuracy(), double(inTop) / double(count));
  double precision = 0, recall = 0;
  for (size_t c = 0; c < classes; ++c) {
    double predicted = 0, labelled = 0;
    for (size_t o = 0; o < classes; ++o) {
      EXPECT_EQ(metrics.confusion()[c * classes + o], confusion[c][o]);
      predicted += double(confusion[o][c]);
      labelled += double(confusion[c][o]);
    }
    precision += predicted > 0 ? double(confusion[c][c]) / predicted : 0;
    recall += labelled > 0 ? double(confusion[c][c]) / labelled : 0;
  }
  EXPECT_DOUBLE_EQ(*metrics.precision(), precision / classes);
  EXPECT_DOUBLE_EQ(*metrics.recall(), recall / classes);
}

TEST(Metrics, TwoClassesAreScoredForClassOne) {
  // Predictions 1, 0, 1, 1 for labels 1, 1, 0, 1.
  std::vector<float> logits = {0, 1, 1, 0, 0, 2, 0, 3};
  std::vector<int64_t> labels = {1, 1, 0, 1};
  Metrics metrics({.classes = 2});
  metrics.add(logits.data(), labels.data(), 4);
  EXPECT_DOUBLE_EQ(*metrics.precision(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(*metrics.recall(), 2.0 / 3);
  EXPECT_EQ(metrics.confusion(), (std::vector<int64_t>{0, 1, 1, 2}));
  // Scores 1, -1, 2, 3: the negative (2) beats two of three positives.
  EXPECT_DOUBLE_EQ(*metrics.auc(), 1.0 / 3);
}

TEST(Metrics, IgnoredRowsAreLeftOut) {
  std::vector<float> logits = {1, 0, 0, 1, 1, 0};
  std::vector<int64_t> labels = {0, -100, 1};
  Metrics metrics({.classes = 2, .ignored = -100});
  ASSERT_TRUE(metrics.add(logits.data(), labels.data(), 3));
  EXPECT_EQ(metrics.count(), 2);
  EXPECT_DOUBLE_EQ(metrics.accuracy(), 0.5);
}

TEST(Metrics, RefusesLabelsOutOfRange) {
  std::vector<float> logits = {1, 0, 0, 1};
  std::vector<int64_t> labels = {0, 2};
  Metrics metrics({.classes = 2});
  EXPECT_FALSE(metrics.add(logits.data(), labels.data(), 2));
  EXPECT_EQ(metrics.count(), 0);
}

TEST(Metrics, LossAndPerplexity) {
  Metrics metrics({.classes = 2});
  EXPECT_TRUE(std::isnan(metrics.meanLoss()));
  metrics.addLoss(6, 4);
  metrics.addLoss(2, 4);
  EXPECT_DOUBLE_EQ(metrics.meanLoss(), 1);
  EXPECT_DOUBLE_EQ(metrics.perplexity(), std::exp(1.0));
}

TEST(Metrics, ManyClassesKeepNoMatrix) {
  Metrics metrics({.classes = 50257});
  std::vector<float> logits(50257, 0);
  logits[50000] = 1;
  int64_t label = 50000;
  ASSERT_TRUE(metrics.add(logits.data(), &label, 1));
  EXPECT_EQ(metrics.accuracy(), 1);
  EXPECT_TRUE(metrics.confusion().empty());
  EXPECT_EQ(metrics.precision(), std::nullopt);
}

} // namespace
