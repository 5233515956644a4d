// SPDX-License-Identifier: Apache-2.0
#include "worker/app/options.h"

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::app {
namespace options_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Result<std::variant<Options, Help>> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "weir-worker");
  return parse_options(static_cast<int>(words.size()), words.data());
}

Options options_of(const std::vector<const char*>& words) {
  auto parsed = parse(words);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return std::get<Options>(*parsed);
}

std::string refusal_of(const std::vector<const char*>& words) {
  const auto parsed = parse(words);
  return parsed ? "" : parsed.error().message;
}

// An environment variable for one test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(Options, HaveDefaultsForAWorkerAlone) {
  const Options options = options_of({"--model=mlp", "--steps=50"});

  EXPECT_EQ(options.model.name, "mlp");
  EXPECT_EQ(options.model.total_steps, 50);
  EXPECT_TRUE(options.standalone());
  EXPECT_FALSE(options.needs_peers());
  EXPECT_FALSE(options.control_port || options.data_port || options.metrics_port);
  EXPECT_EQ(options.connections, 0) << "by measuring";
}

TEST(Options, SilenceIsThatOfAnyConnectionUnlessItIsToldItself) {
  EXPECT_EQ(options_of({}).silence(), std::chrono::seconds(30));
  EXPECT_EQ(options_of({"--dead-after=20"}).silence(), std::chrono::seconds(20));
  EXPECT_EQ(options_of({"--dead-after=20", "--lost-after=5"}).silence(), std::chrono::seconds(5));
}

TEST(Options, TakeThePrecision) {
  EXPECT_EQ(options_of({}).model.precision, stage::Precision::kFp32);
  EXPECT_EQ(options_of({}).graphs, stage::GraphUse::kWhereFaster);
  EXPECT_EQ(options_of({"--graphs=on"}).graphs, stage::GraphUse::kAlways);
  EXPECT_EQ(options_of({"--graphs=off"}).graphs, stage::GraphUse::kOff);
  EXPECT_THAT(refusal_of({"--graphs=maybe"}), HasSubstr("--graphs"));
  EXPECT_FALSE(options_of({}).threads);
  EXPECT_EQ(options_of({"--threads=3"}).threads, 3);
  EXPECT_THAT(refusal_of({"--threads=0"}), HasSubstr("--threads"));
  EXPECT_EQ(options_of({"--precision=bf16"}).model.precision, stage::Precision::kBf16);
  EXPECT_THAT(refusal_of({"--precision=fp8"}), HasSubstr("--precision"));
}

TEST(Options, TakeTheSizesOfAGpt) {
  const Options options = options_of({"--model=gpt", "--layers=3", "--width=48", "--heads=4"});
  EXPECT_EQ(options.model.blocks, 3);
  EXPECT_EQ(options.model.width, 48);
  EXPECT_EQ(options.model.heads, 4);
  EXPECT_EQ(refusal_of({"--model=gpt", "--layers=3", "--heads=4"}),
            "--width: required by --model=gpt, not set");
  EXPECT_EQ(refusal_of({"--model=gpt-tiny", "--heads=4"}),
            "--heads: has no effect without --model=gpt or llama; set both");
}

TEST(Options, TakeAScheduleAndItsEnd) {
  const Options options =
      options_of({"--lr-schedule=wsd", "--min-lr-ratio=0.05", "--decay-steps=20", "--beta1=0.8",
                  "--beta2=0.99", "--epsilon=1e-6"});
  EXPECT_EQ(options.model.schedule, "wsd");
  EXPECT_EQ(options.model.min_ratio, 0.05);
  EXPECT_EQ(options.model.decay_steps, 20);
  EXPECT_EQ(options.model.beta1, 0.8);
  EXPECT_EQ(options.model.beta2, 0.99);
  EXPECT_EQ(options.model.epsilon, 1e-6);
  EXPECT_THAT(refusal_of({"--min-lr-ratio=0.1"}), HasSubstr("no effect without --lr-schedule;"));
  EXPECT_THAT(refusal_of({"--lr-schedule=cosine", "--decay-steps=5"}),
              HasSubstr("no effect without --lr-schedule=wsd;"));
  EXPECT_EQ(refusal_of({"--lr-schedule=wsd", "--decay-steps=101"}),
            "--decay-steps: must be at most --steps 100, found 101");
  for (const char* wrong :
       {"--beta1=1", "--beta2=-0.1", "--epsilon=0", "--min-lr-ratio=2", "--lr-schedule=steps"}) {
    const std::string word(wrong);
    EXPECT_THAT(refusal_of({wrong}), HasSubstr(word.substr(0, word.find('=')))) << wrong;
  }
}

TEST(Options, ReadNumbersAsPeopleWriteThem) {
  EXPECT_EQ(options_of({"--steps=010"}).steps, 10);  // decimal, no octal number
  EXPECT_EQ(options_of({"--seed=0017"}).model.seed, 17U);
  const Variable interval("WEIR_CHECKPOINT_INTERVAL", "0100");
  EXPECT_EQ(options_of({}).checkpoint_interval, 100);
  for (const char* option :
       {"--steps", "--seed", "--seq", "--vocab", "--warmup", "--micro-batches",
        "--micro-batch-size", "--step-report", "--diverged-after", "--attempt", "--ranks",
        "--worker-index", "--workers", "--profile-rounds", "--control-port", "--dead-after",
        "--checkpoint-keep", "--validation-samples"}) {
    for (const char* value :
         {"-1", "0x10", "1e1", "1_0", "99999999999999999999", "2.5", "5\n", "x"}) {
      const std::string argument = std::string(option) + "=" + value;
      const std::string refusal = refusal_of({argument.c_str()});
      EXPECT_THAT(refusal, AllOf(HasSubstr(option), HasSubstr("must be a whole number from ")))
          << argument;
      EXPECT_THAT(refusal, Not(HasSubstr("\n"))) << argument;
      EXPECT_LT(refusal.size(), 150U) << refusal;
    }
  }
}

TEST(Options, ListenOnAddressesOnly) {
  for (const char* wrong : {"--listen=nonsense", "--listen=300.1.1.1", "--listen=localhost",
                            "--listen=127.0.0.1:80", "--listen=[::1]"}) {
    EXPECT_THAT(refusal_of({wrong}), HasSubstr("--listen: must be an IP address, found '"))
        << wrong;
  }
  for (const char* right :
       {"--listen=127.0.0.1", "--listen=::1", "--listen=fe80::1%lo", "--listen=0.0.0.0"}) {
    EXPECT_EQ(refusal_of({right}), "") << right;
  }
}

TEST(Options, RefuseAStepThatCannotBeCounted) {
  EXPECT_THAT(
      refusal_of({"--micro-batches=65535", "--micro-batch-size=65535"}),
      HasSubstr("--micro-batch-size: 65535 times 65535 --micro-batches is above 1000000000"));
  EXPECT_EQ(refusal_of({"--micro-batches=65535", "--micro-batch-size=4"}), "");
}

TEST(Options, TakeTheDeadlinesOfTheSpec) {
  constexpr auto kYears = std::chrono::hours(24 * 365 * 10);
  {
    const Variable start("WEIR_STARTUP_TIMEOUT", "3600"), rejoin("WEIR_REJOIN_TIMEOUT", "60"),
        progress("WEIR_PROGRESS_DEADLINE", "7200");
    const Options options = options_of({});
    EXPECT_EQ(options.startup_timeout, std::chrono::seconds(3600));
    EXPECT_EQ(options.rejoin_timeout, std::chrono::seconds(60));
    EXPECT_EQ(options.progress_deadline, std::chrono::seconds(7200));
    EXPECT_EQ(options.connect_timeout, std::chrono::seconds(7200));  // a neighbour may load so long
    EXPECT_EQ(options_of({"--connect-timeout=5"}).connect_timeout, std::chrono::seconds(5));
  }
  const Variable start("WEIR_STARTUP_TIMEOUT", "0"), rejoin("WEIR_REJOIN_TIMEOUT", "0"),
      progress("WEIR_PROGRESS_DEADLINE", "0");
  const Options options = options_of({});
  EXPECT_GT(options.startup_timeout, kYears);
  EXPECT_GT(options.rejoin_timeout, kYears);
  EXPECT_GT(options.progress_deadline, kYears);
  EXPECT_GT(options.connect_timeout, kYears);
  EXPECT_THAT(refusal_of({"--progress-deadline=-1"}), HasSubstr("--progress-deadline"));
}

TEST(Options, TakeNoNumberThatIsNone) {
  for (const char* option : {"--lr", "--weight-decay", "--grad-clip", "--grace",
                             "--startup-timeout", "--progress-deadline", "--checkpoint-minutes"}) {
    for (const char* value : {"nan", "-nan", "inf", "-1", "1e400", "x"}) {
      const std::string argument = std::string(option) + "=" + value;
      EXPECT_THAT(refusal_of({argument.c_str()}), AllOf(HasSubstr(option), HasSubstr(value)));
    }
  }
  for (const char* rate : {"nanMbit", "infMB", "1e-300MB", "1bit", "0MB", "-1MB", "1e300GB"}) {
    const std::string argument = std::string("--pace-rate=") + rate;
    EXPECT_THAT(refusal_of({argument.c_str()}), AllOf(HasSubstr("--pace-rate"), HasSubstr(rate)));
  }
}

TEST(Options, NameAnAddressThatIsNone) {
  for (const char* address : {"localhost", "localhost:", ":7070", "localhost:99999",
                              "localhost:port", "[::1:7070", "http://localhost:7070"}) {
    const std::string option = "--coordinator=" + std::string(address);
    EXPECT_THAT(refusal_of({option.c_str()}),
                AllOf(HasSubstr("--coordinator"), HasSubstr(address)));
  }
  EXPECT_EQ(options_of({"--coordinator=[::1]:7070"}).coordinator, "[::1]:7070");
  const Variable url("WEIR_CONTROL_URL", "http://user:s3cret@operator");
  EXPECT_THAT(
      refusal_of({"--control-dir=/tmp"}),
      AllOf(HasSubstr("WEIR_CONTROL_URL"), HasSubstr("operator"), Not(HasSubstr("s3cret"))));
}

TEST(Options, TakeTheProfileSettingsOfTheOperator) {
  const Variable url("WEIR_CONTROL_URL", "https://weir.weir-system.svc:8443");
  const Variable folder("WEIR_CONTROL_DIR", "/var/run/weir");
  EXPECT_TRUE(options_of({}).measures());
  EXPECT_EQ(options_of({}).profile_rounds, 5);
  {
    const Variable source("WEIR_PROFILE_SOURCE", "ConfigMap");
    EXPECT_FALSE(options_of({}).measures());
  }
  {
    const Variable rounds("WEIR_PROFILE_ROUNDS", "17");
    EXPECT_EQ(options_of({}).profile_rounds, 17);
  }
  const Variable source("WEIR_PROFILE_SOURCE", "Guess");
  EXPECT_THAT(refusal_of({}), HasSubstr("Guess"));
}

TEST(Options, TakeTheNetworkOfTheSpec) {
  EXPECT_FALSE(options_of({}).boundary_dscp);
  const Variable control("WEIR_CONGESTION_CONTROL", "bbr");
  const Variable boundary("WEIR_DSCP_BOUNDARY", "18");
  const Variable bulk("WEIR_DSCP_BULK", "0");
  EXPECT_EQ(options_of({}).congestion_control, "bbr");
  EXPECT_EQ(options_of({}).boundary_dscp, 18);
  EXPECT_EQ(options_of({}).bulk_dscp, 0);
  EXPECT_EQ(refusal_of({"--connections=64"}),
            "--connections: must be a whole number from 0 to 16, found '64'");
  EXPECT_EQ(refusal_of({"--dscp-bulk=64"}),
            "--dscp-bulk: must be a whole number from 0 to 63, found '64'");
  EXPECT_EQ(refusal_of({"--congestion-control=a b"}),
            "--congestion-control: must be 1 to 15 of a-z 0-9 _ -, found \"a b\"");
}

TEST(Options, NobodyMeasuresWithoutAnOperator) {
  EXPECT_FALSE(options_of({}).measures());
}

TEST(Options, ReadTheEnvironmentThatTheOperatorSets) {
  const Variable url("WEIR_CONTROL_URL", "https://weir.weir-system.svc:8443");
  const Variable folder("WEIR_CONTROL_DIR", "/var/run/weir");
  const Variable index("WEIR_WORKER_INDEX", "2");
  const Variable workers("WEIR_WORKERS", "4");
  const Variable coordinator("WEIR_COORDINATOR", "gpt-gpu-0.gpt:7070");
  const Variable pod("WEIR_POD_NAME", "gpt-gpu-2");
  const Variable grace("WEIR_GRACE_SECONDS", "7");
  const Variable transport("WEIR_TRANSPORT", "TCP");
  const Variable profile("WEIR_EMULATE_PROFILE", "/profile/profile.json");
  const Variable device("WEIR_EMULATE_DEVICE", "A100");

  const Options options = options_of({});

  EXPECT_FALSE(options.standalone());
  EXPECT_EQ(options.control_dir, "/var/run/weir");
  EXPECT_EQ(options.worker_index, 2);
  EXPECT_EQ(options.workers, 4);
  EXPECT_EQ(options.coordinator, "gpt-gpu-0.gpt:7070");
  EXPECT_EQ(options.pod, "gpt-gpu-2");
  EXPECT_EQ(options.grace, std::chrono::seconds(7));
  EXPECT_EQ(options.emulation.profile, "/profile/profile.json");
  EXPECT_EQ(options.emulation.device_class, "A100");
}

TEST(Options, ThatContradictEachOtherAreRefusedByName) {
  const Variable unused("WEIR_UNUSED", "1");
  struct Case {
    std::vector<const char*> words;
    const char* names;
  };
  const std::vector<Case> cases = {
      {{"--plan=p.json", "--control-url=https://x", "--control-dir=d"}, "--plan"},
      {{"--control-url=https://x"}, "WEIR_CONTROL_DIR"},
      {{"--worker-index=2", "--workers=2"}, "--worker-index"},
      {{"--worker-index=8191", "--workers=2", "--coordinator=a:1"}, "--worker-index"},
      {{"--plan=p.json", "--worker-index=1", "--workers=2"}, "--coordinator"},
      {{"--workers=2"}, "--workers"},
      {{"--emulate-device=A100"}, "--emulate-device"},
      {{"--emulate-idle"}, "--emulate-idle"},
      {{"--ranks=2"}, "WEIR_RANKS"},
      {{"--transport=RDMA"}, "WEIR_TRANSPORT"},
      {{"--pace-link=0-1"}, "--pace-rate"},
      {{"--pace-rate=40Mbit", "--pace-other-rate=80Mbit"}, "--pace-link"},
      {{"--log-level=loud"}, "--log-level"},
      {{"--data-port=70000"}, "--data-port"},
      {{"stray"}, "stray"},
  };
  for (const Case& one : cases) EXPECT_THAT(refusal_of(one.words), HasSubstr(one.names));
  const Options spare =
      options_of({"--plan=p.json", "--worker-index=8193", "--workers=2", "--coordinator=a:1"});
  EXPECT_EQ(spare.worker_index, 8193);
}

TEST(Options, HelpNamesEveryGroup) {
  const auto parsed = parse({"--help"});

  ASSERT_TRUE(parsed);
  const std::string text = std::get<Help>(*parsed).text;
  for (const char* word : {"--model", "--plan", "--emulate-profile", "--pace-rate", "--grace",
                           "WEIR_CONTROL_URL", "--loss-log"}) {
    EXPECT_THAT(text, HasSubstr(word));
  }
}

TEST(PaceLink, NamesABoundaryAndMaybeADirection) {
  const Options both = options_of({"--pace-rate=40Mbit", "--pace-link=1-2"});
  const Options back = options_of({"--pace-rate=40Mbit", "--pace-link=1-2:bwd"});

  EXPECT_EQ(both.emulation.pace_boundary, 1);
  EXPECT_EQ(both.emulation.pace_channel, -1);
  EXPECT_EQ(back.emulation.pace_channel, 1);
  EXPECT_EQ(both.emulation.pace_other_bytes_per_second, 0);
  EXPECT_EQ(options_of({"--pace-rate=40Mbit", "--pace-link=1-2", "--pace-other-rate=80Mbit"})
                .emulation.pace_other_bytes_per_second,
            1e7);
  for (const char* wrong :
       {"--pace-link=1-3", "--pace-link=x-y", "--pace-link=1", "--pace-link=1-2:up"}) {
    EXPECT_THAT(refusal_of({"--pace-rate=40Mbit", wrong}), HasSubstr("--pace-link")) << wrong;
  }
}

TEST(Options, OfCheckpointsComeFromTheEnvironmentToo) {
  EXPECT_FALSE(options_of({}).saves());
  const Variable path("WEIR_CHECKPOINT_PATH", "/ckpt");
  const Variable interval("WEIR_CHECKPOINT_INTERVAL", "500");
  const Variable minutes("WEIR_CHECKPOINT_MINUTES", "2.5");
  const Variable keep("WEIR_CHECKPOINT_KEEP", "3");

  const Options options = options_of({});

  EXPECT_TRUE(options.saves());
  EXPECT_TRUE(options.needs_peers());  // a worker alone coordinates its saves
  EXPECT_TRUE(options.plans_itself());
  EXPECT_EQ(options.checkpoint_dir, "/ckpt");
  EXPECT_EQ(options.checkpoint_interval, 500);
  EXPECT_EQ(options.checkpoint_period, std::chrono::seconds(150));
  EXPECT_EQ(options.checkpoint_keep, 3);
}

TEST(Options, OfValidationBelongTogether) {
  EXPECT_EQ(options_of({}).validation_interval, 0);
  EXPECT_EQ(options_of({"--validation-interval=5"}).validation_samples, 64);
  EXPECT_EQ(
      options_of({"--data=a", "--validation-interval=5", "--validation-data=b"}).validation_data,
      "b");
  EXPECT_THAT(refusal_of({"--data=a", "--validation-interval=5"}), HasSubstr("--validation-data"));
  EXPECT_THAT(refusal_of({"--validation-data=b"}), HasSubstr("--validation-interval"));
  EXPECT_THAT(refusal_of({"--validation-samples=0"}), HasSubstr("--validation-samples"));
}

TEST(Options, AnUnsetCheckpointIntervalIsByTime) {
  const Variable interval("WEIR_CHECKPOINT_INTERVAL", "");
  EXPECT_EQ(options_of({"--checkpoint-dir=/c"}).checkpoint_interval, 0);
  EXPECT_EQ(options_of({"--checkpoint-dir=/c"}).checkpoint_period, std::chrono::minutes(10));
  EXPECT_THAT(refusal_of({"--checkpoint-keep=0"}), HasSubstr("--checkpoint-keep"));
}

TEST(Options, OfAHostProgramHaveItsLayersAsModel) {
  const auto hosted = [](std::vector<const char*> words) {
    words.insert(words.begin(), "host");
    return parse_options(static_cast<int>(words.size()), words.data(), "host");
  };

  const auto options = std::get<Options>(*hosted({"--model=gpt", "--model-option=width=8"}));
  EXPECT_TRUE(options.hosted && options.foreign());
  EXPECT_EQ(options.model.model_options, R"({"width":8})");
  EXPECT_EQ(std::get<Options>(*hosted({})).model.name, "");

  EXPECT_THAT(hosted({"--plugin=x.so"}).error().message, HasSubstr("--plugin"));
  EXPECT_THAT(hosted({"--device=cuda"}).error().message,
              HasSubstr("--device=cuda: this program computes on the host only"));
  EXPECT_THAT(std::get<Help>(*hosted({"--help"})).text,
              AllOf(HasSubstr("host"), Not(HasSubstr("gpt-tiny"))));
}

}  // namespace options_test
}  // namespace weir::app
