// SPDX-License-Identifier: Apache-2.0
#include "worker/app/agreement.h"

#include <functional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::app {
namespace agreement_test {

using testing::HasSubstr;
using testing::IsEmpty;

struct Data final : data::Dataset {
  explicit Data(std::string content) : text(std::move(content)) {}
  Status sample(std::int64_t, int, int, std::span<std::int32_t>,
                std::span<std::int32_t>) const override {
    return Unit{};
  }
  std::string description() const override { return ""; }
  std::string content() const override { return text; }
  std::string text;
};

using Change = std::function<void(Options&)>;

Options options_with(const Change& change) {
  Options options;
  options.model.sequence = 16;
  options.model.name = "gpt-tiny";
  options.model.total_steps = options.steps;
  change(options);
  return options;
}

stage::Model model_of(const Options& options) {
  auto model = stage::describe_model(options.model);
  EXPECT_TRUE(model) << model.error().message;
  return *std::move(model);
}

Settings of_job(const Change& change, const std::string& data = "here") {
  const Options options = options_with(change);
  return settings_of_job(options, model_of(options), Data(data), nullptr);
}

const Change kNothing = [](Options&) {};

TEST(Agreement, EveryOptionThatDecidesTheNumbersIsCompared) {
  const std::vector<std::pair<std::string, Change>> changes = {
      {"--model", [](Options& o) { o.model.name = "mlp"; }},
      {"--seq", [](Options& o) { o.model.sequence = 32; }},
      {"--vocab", [](Options& o) { o.model.vocabulary = 512; }},
      {"--seed", [](Options& o) { o.model.seed = 7; }},
      {"--precision", [](Options& o) { o.model.precision = stage::Precision::kBf16; }},
      {"--lr", [](Options& o) { o.model.learning_rate = 0.02; }},
      {"--warmup", [](Options& o) { o.model.warmup_steps = 3; }},
      {"--lr-schedule", [](Options& o) { o.model.schedule = "cosine"; }},
      {"--weight-decay", [](Options& o) { o.model.weight_decay = 2; }},
      {"--steps", [](Options& o) { o.steps = 7; }},
      {"--grad-clip", [](Options& o) { o.grad_clip = 1; }},
      {"--validation-interval", [](Options& o) { o.validation_interval = 5; }},
      {"--init-from", [](Options& o) { o.init_from = "/there"; }},
      {"--checkpoint-dir", [](Options& o) { o.checkpoint_dir = "/there"; }},
  };
  for (const auto& [name, change] : changes) {
    const auto found = differences(of_job(change), of_job(kNothing));
    ASSERT_FALSE(found.empty()) << name;
    EXPECT_EQ(found.front().name, name);
  }
  EXPECT_EQ(describe(differences(of_job(kNothing), of_job(kNothing, "4500 bytes")), "worker 0"),
            "--data is here, worker 0 has 4500 bytes");
}

TEST(Agreement, TheSizesOfAGptAreCompared) {
  const auto sized = [](int blocks, int heads) {
    return of_job([=](Options& o) {
      o.model.name = "gpt", o.model.blocks = blocks, o.model.width = 16, o.model.heads = heads;
    });
  };
  EXPECT_EQ(differences(sized(1, 2), sized(2, 2)).front().name, "--layers");
  EXPECT_EQ(differences(sized(1, 2), sized(1, 4)).front().name, "--heads");
}

TEST(Agreement, AScheduleIsComparedWithItsLengthAndItsEnd) {
  const auto wsd = [](const Change& change) {
    return of_job([&](Options& o) {
      o.model.schedule = "wsd";
      change(o);
    });
  };
  const auto first = [&](const Change& change) {
    const auto found = differences(wsd(change), wsd(kNothing));
    return found.empty() ? "" : found.front().name;
  };
  EXPECT_EQ(first([](Options& o) { o.model.total_steps = 50; }),
            "--steps (length of the schedule)");
  EXPECT_EQ(first([](Options& o) { o.model.min_ratio = 0.1; }), "--min-lr-ratio");
  EXPECT_EQ(first([](Options& o) { o.model.decay_steps = 5; }), "--decay-steps");
  EXPECT_EQ(first([](Options& o) { o.model.decay_steps = 10; }), "");  // the default, in full
}

TEST(Agreement, WhatEachWorkerMayHaveForItselfIsNotCompared) {
  const auto own = of_job([](Options& o) {
    o.data = "/another/path/of/the/same/text";
    o.pod = "pod-7", o.node = "n", o.worker_index = 7, o.loss_log = "log", o.step_report = 0;
    o.device = "cuda:1", o.graphs = stage::GraphUse::kOff;
  });

  EXPECT_THAT(differences(own, of_job(kNothing)), IsEmpty());
}

struct Written {  // a checkpoint, by a run with these options
  explicit Written(const Change& change = kNothing) {
    const Options options = options_with(change);
    const stage::Model model = model_of(options);
    const stage::ModelOptions& m = options.model;
    manifest = {.step = 120,
                .model = m.name,
                .digest = model.digest,
                .shapes = model.shapes,
                .settings = settings_of_checkpoint(options, Data("here")),
                .seed = m.seed,
                .optimizer = {.learning_rate = m.learning_rate,
                              .beta1 = m.beta1,
                              .beta2 = m.beta2,
                              .epsilon = m.epsilon,
                              .weight_decay = m.weight_decay,
                              .schedule = m.schedule,
                              .warmup_steps = m.warmup_steps}};
  }
  // As versions before there were settings wrote it.
  Written& old() {
    manifest.shapes.clear();
    manifest.settings.clear();
    return *this;
  }
  Verdict goes_on(const Change& change, const std::string& data = "here") const {
    const Options options = options_with(change);
    return compare(manifest, options, model_of(options),
                   settings_of_checkpoint(options, Data(data)));
  }
  checkpoint::Manifest manifest;
};

Change agreed(const Change& change) {
  return [change](Options& o) {
    change(o);
    o.change_options = true;
  };
}

const Change kOtherRate = [](Options& o) { o.model.learning_rate = 0.02; };

TEST(Agreement, ACheckpointOfARunWithOtherOptionsIsTakenByConsentOnly) {
  const Verdict refused = Written().goes_on(kOtherRate);
  EXPECT_THAT(refused.refusal, HasSubstr("--lr is 0.02, the checkpoint has 0.0003"));
  EXPECT_THAT(refused.refusal, HasSubstr("--change-options"));

  const Verdict taken = Written().goes_on(agreed(kOtherRate));
  EXPECT_EQ(taken.refusal, "");
  ASSERT_EQ(taken.different.size(), 1U);
  EXPECT_EQ(taken.different[0].name, "--lr");
  EXPECT_THAT(Written().goes_on(kNothing, "grown").refusal, HasSubstr("--data is grown"));
}

TEST(Agreement, MoreStepsAreNoOtherOptionsUnlessTheyStretchTheSchedule) {
  const Change more = [](Options& o) { o.steps = o.model.total_steps = 400; };
  const Change cosine = [](Options& o) { o.model.schedule = "cosine"; };
  const Change longer = [&](Options& o) { cosine(o), more(o); };

  EXPECT_EQ(Written().goes_on(more).refusal, "");
  EXPECT_THAT(Written(cosine).goes_on(longer).refusal,
              HasSubstr("--steps (length of the schedule) is 400, the checkpoint has 100"));
  EXPECT_EQ(Written(cosine).goes_on(agreed(longer)).refusal, "");
}

TEST(Agreement, AnotherModelIsRefusedEvenByConsent) {
  const Verdict verdict = Written().goes_on(agreed([](Options& o) { o.model.sequence = 32; }));

  EXPECT_THAT(verdict.refusal, HasSubstr("another model"));
  EXPECT_THAT(verdict.refusal, HasSubstr("--seq is 32, the checkpoint has 16"));
}

TEST(Agreement, ACheckpointOfAnOlderVersionTellsItsOptimizer) {
  EXPECT_EQ(Written().old().goes_on(kNothing).refusal, "");
  EXPECT_THAT(Written().old().goes_on(kOtherRate).refusal,
              HasSubstr("--lr is 0.02, the checkpoint has 0.0003"));
  const Verdict taken = Written().old().goes_on(agreed(kOtherRate));
  EXPECT_EQ(taken.refusal, "");
  EXPECT_EQ(taken.different.size(), 1U);
  EXPECT_THAT(Written().old().goes_on([](Options& o) { o.model.sequence = 32; }).refusal,
              HasSubstr("another model"));
}

}  // namespace agreement_test
}  // namespace weir::app
