#include "TestPlan.h"

#include "runtime/Trainer.h"

#include <cmath>
#include <gtest/gtest.h>

namespace sluice::test {

static std::vector<float> numbers(int count) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i)
    values.push_back(static_cast<float>(i % 7) - 3);
  return values;
}

static TrainSummary mustTrain(Session &session, BatchSource &source,
                              const TrainOptions &options,
                              BatchSource *evalSource = nullptr) {
  auto summary = train(session, source, evalSource, options);
  EXPECT_TRUE(summary.ok()) << summary.status().message;
  return summary.ok() ? *summary : TrainSummary();
}

TEST(Trainer, EpochsEndWithTheirLastPartialWindow) {
  auto session = makeSession(scalarPlan(4, 2, 0.1).read());
  FloatSource source(numbers(18), 4); // batches 4 4 | 4 4 | 2
  TrainOptions options;
  options.epochs = 2;
  std::vector<int64_t> samples;
  options.onUpdate = [&](const TrainProgress &progress) {
    samples.push_back(progress.samples);
    EXPECT_EQ(progress.target, 6);
    EXPECT_EQ(progress.epoch, (progress.samples - 1) / 18);
    return true;
  };
  TrainSummary summary = mustTrain(*session, source, options);
  EXPECT_EQ(samples, (std::vector<int64_t>{8, 16, 18, 26, 34, 36}));
  EXPECT_EQ(summary.steps, 6);
  EXPECT_EQ(summary.samples, 36);
  EXPECT_EQ(summary.losses.size(), 6u);
  EXPECT_GT(summary.stepUsMedian, 0.0);
}

TEST(Trainer, ResumedRunHasTheLossesOfTheOneThatNeverStopped) {
  PlanPtr plan = scalarPlan(4, 2, 0.1).read();
  FloatSource source(numbers(18), 4);
  TrainOptions options;
  options.steps = 11;
  auto straight = makeSession(plan);
  std::vector<double> expected = mustTrain(*straight, source, options).losses;
  for (int64_t stopAt = 1; stopAt < 11; ++stopAt) {
    TemporaryFolder folder;
    TrainOptions part = options;
    part.checkpointFolder = folder.path;
    part.steps = stopAt;
    auto first = makeSession(plan);
    std::vector<double> losses = mustTrain(*first, source, part).losses;
    part.steps = 11;
    part.resume = true;
    auto second = makeSession(plan);
    TrainSummary rest = mustTrain(*second, source, part);
    EXPECT_EQ(rest.steps, 11 - stopAt);
    EXPECT_EQ(rest.updates, 11);
    losses.insert(losses.end(), rest.losses.begin(), rest.losses.end());
    EXPECT_EQ(losses, expected) << "stopped at " << stopAt;
    EXPECT_EQ(scalarState(*second, "param/w"), scalarState(*straight, "param/w"));
  }
}

TEST(Trainer, SavesAndEvaluatesWhenDue) {
  TemporaryFolder folder;
  auto session = makeSession(scalarPlan(4, 1, 0.1).read());
  FloatSource source(numbers(10), 4), held(numbers(7), 4);
  TrainOptions options;
  options.steps = 7;
  options.checkpointFolder = folder.path;
  options.checkpointEvery = 3;
  options.evalEvery = 2;
  std::vector<int64_t> evaluated;
  options.onEval = [&](const EvalReport &report) {
    evaluated.push_back(report.updates);
    EXPECT_EQ(report.samples, 7);
  };
  int64_t batches = 0;
  options.onEvalBatch = [&](const Session &, const Batch &batch) {
    batches += batch.count;
    return Status::success();
  };
  TrainSummary summary = mustTrain(*session, source, options, &held);
  EXPECT_EQ(evaluated, (std::vector<int64_t>{2, 4, 6, 7}));
  EXPECT_EQ(batches, 4 * 7);
  EXPECT_EQ(listCheckpoints(folder.path), (std::vector<int64_t>{7, 6}));
  ASSERT_TRUE(summary.eval.has_value());
  // mean of (w - t)^2 over the held-out targets -3 ... 3
  double w = scalarState(*session, "param/w");
  EXPECT_NEAR(summary.eval->loss, w * w + 4, 1e-5);
}

/// Evaluations by script: `figures` in turn.
static void follow(TrainOptions &options, std::vector<double> figures) {
  auto next = std::make_shared<size_t>(0);
  options.metric = [=](const std::string &) -> Result<double> {
    return figures.at((*next)++);
  };
}

TEST(Trainer, StopsAfterPatienceAndKeepsTheBest) {
  TemporaryFolder folder;
  auto session = makeSession(scalarPlan(4, 1, 0.1).read());
  FloatSource source(numbers(12), 4), held(numbers(4), 4);
  TrainOptions options;
  options.steps = 100;
  options.evalEvery = 1;
  options.checkpointFolder = folder.path;
  options.keepBest = "loss";
  options.earlyStop = "accuracy";
  options.patience = 2;
  follow(options, {0.5, 0.7, std::nan(""), 0.8, 0.8, 0.6, 0.9});
  TrainSummary summary = mustTrain(*session, source, options, &held);
  EXPECT_TRUE(summary.isStoppedEarly);
  EXPECT_EQ(summary.updates, 6); // best at 4; 0.8 again is not better, nor is 0.6
  EXPECT_EQ(listCheckpoints(folder.path), (std::vector<int64_t>{6}));
  ASSERT_TRUE(summary.best && summary.best->value());
  EXPECT_EQ(summary.best->metric(), "loss");
  EXPECT_EQ(listCheckpoints(folder.path + "/best"),
            (std::vector<int64_t>{summary.best->updates()}));

  auto again = makeSession(scalarPlan(4, 1, 0.1).read());
  ASSERT_TRUE(loadCheckpoint(*again, folder.path + "/best").ok());
  auto report = evaluate(*again, held);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->loss, *summary.best->value());
}

TEST(Trainer, AResumedRunJudgesOnFromWhereItStopped) {
  TemporaryFolder folder;
  FloatSource source(numbers(12), 4), held(numbers(4), 4);
  TrainOptions options;
  options.steps = 2;
  options.evalEvery = 1;
  options.checkpointFolder = folder.path;
  options.keepBest = options.earlyStop = "accuracy";
  options.patience = 2;
  auto first = makeSession(scalarPlan(4, 1, 0.1).read());
  follow(options, {0.9, 0.9, 0.5, 0.5}); // each evaluation is asked twice
  EXPECT_FALSE(mustTrain(*first, source, options, &held).isStoppedEarly);
  options.steps = 100;
  options.resume = true;
  auto second = makeSession(scalarPlan(4, 1, 0.1).read());
  follow(options, {0.6, 0.6, 1, 1});
  TrainSummary summary = mustTrain(*second, source, options, &held);
  EXPECT_TRUE(summary.isStoppedEarly);
  EXPECT_EQ(summary.updates, 3);
  EXPECT_EQ(listCheckpoints(folder.path + "/best"), (std::vector<int64_t>{1}));

  options.keepBest = "auc";
  auto third = makeSession(scalarPlan(4, 1, 0.1).read());
  auto refused = train(*third, source, &held, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message.find("is about the metric 'accuracy'"),
            std::string::npos);
}

TEST(Trainer, RefusesToJudgeWithoutEvaluation) {
  auto session = makeSession(scalarPlan(4, 1, 0.1).read());
  FloatSource source(numbers(12), 4);
  TrainOptions options;
  options.steps = 1;
  options.earlyStop = "loss";
  EXPECT_EQ(train(*session, source, nullptr, options).status().code, StatusCode::usage);
  options.earlyStop = "";
  options.keepBest = "loss";
  EXPECT_EQ(train(*session, source, &source, options).status().code, StatusCode::usage);
}

TEST(Trainer, TailIsSkippedWhenTheModelNeedsFullBatches) {
  TestPlan p = scalarPlan(4, 2, 0.1);
  p.plan.full_batches = true;
  auto session = makeSession(p.read());
  FloatSource source(numbers(14), 4); // batches 4 4 | 4 (2)
  TrainOptions options;
  options.epochs = 2;
  TrainSummary summary = mustTrain(*session, source, options);
  EXPECT_EQ(summary.updates, 4);
  ASSERT_EQ(summary.notes.size(), 1u);
  EXPECT_NE(summary.notes[0].find("last 2 samples of each epoch"), std::string::npos);
  StepResult result;
  EXPECT_EQ(session->step(batchOf({1, 2, 3}), result).code, StatusCode::usage);
  EXPECT_EQ(session->eval(batchOf({1, 2, 3}), result).code, StatusCode::usage);
  EXPECT_TRUE(session->infer(batchOf({1, 2, 3})).ok());
  auto report = evaluate(*session, source);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->samples, 12);
  EXPECT_EQ(report->skipped, 2);

  FloatSource tooFew(numbers(3), 4);
  EXPECT_EQ(train(*session, tooFew, nullptr, options).status().code, StatusCode::refused);
}

TEST(Trainer, EvalCountsTheTailOnce) {
  auto session = makeSession(scalarPlan(4, 1, 0.1, 1).read());
  FloatSource source({0, 0, 0, 0, 3}, 4);
  auto report = evaluate(*session, source);
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->loss, (4 * 1.0 + 4.0) / 5);
}

TEST(Trainer, StopsWhenAsked) {
  TemporaryFolder folder;
  auto session = makeSession(scalarPlan(1, 1, 0.1).read());
  FloatSource source(numbers(10), 1);
  TrainOptions options;
  options.steps = 1000;
  options.checkpointFolder = folder.path;
  options.onUpdate = [](const TrainProgress &progress) { return progress.updates < 5; };
  EXPECT_EQ(mustTrain(*session, source, options).updates, 5);
  EXPECT_EQ(listCheckpoints(folder.path), std::vector<int64_t>{5});
}

TEST(Trainer, LossThatIsNotFiniteEndsTraining) {
  TemporaryFolder folder;
  auto session = makeSession(scalarPlan(1, 1, 1e30).read());
  FloatSource source({1, 1e10f}, 1);
  TrainOptions options;
  options.steps = 100;
  options.checkpointFolder = folder.path;
  auto summary = train(*session, source, nullptr, options);
  ASSERT_FALSE(summary.ok());
  EXPECT_EQ(summary.status().code, StatusCode::damaged);
  EXPECT_NE(summary.status().message.find("is not finite"), std::string::npos);
  EXPECT_TRUE(listCheckpoints(folder.path).empty());
}

TEST(Trainer, DoesNotMixRunsInOneFolder) {
  TemporaryFolder folder;
  PlanPtr plan = scalarPlan(1, 1, 0.1).read();
  FloatSource source(numbers(10), 1);
  TrainOptions options;
  options.steps = 2;
  options.checkpointFolder = folder.path;
  auto session = makeSession(plan);
  mustTrain(*session, source, options);
  auto again = train(*makeSession(plan), source, nullptr, options);
  EXPECT_EQ(again.status().code, StatusCode::refused);
  options.steps.reset();
  options.checkpointFolder.clear();
  EXPECT_EQ(train(*session, source, nullptr, options).status().code, StatusCode::usage);
}

} // namespace sluice::test
