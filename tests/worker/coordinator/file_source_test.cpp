// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "tests/worker/control/recording_engine.h"
#include "tests/worker/coordinator/switch_world.h"
#include "worker/coordinator/coordinator.h"
#include "worker/protocol/codec.h"

namespace weir::coordinator::test {
namespace file_source_test {

TEST(FileSource, TakesEachHigherRevisionOnceAndIgnoresBadFiles) {
  const weir::test::TempDir folder;
  const auto write = [&](const std::string& text) { folder.file("plan.json", text); };
  std::mutex seen_mutex;
  std::vector<std::uint32_t> seen;
  const auto has_seen = [&](const std::vector<std::uint32_t>& revisions) {
    return weir::test::eventually([&] {
      const std::lock_guard lock(seen_mutex);
      return seen == revisions;
    });
  };
  const auto source = make_file_source((folder.path() / "plan.json").string());  // not there yet
  source->start({.on_plan = [&](const schedule::Plan& plan) {
    const std::lock_guard lock(seen_mutex);
    seen.push_back(plan.revision);
  }});

  write(protocol::encode_plan(plan(3, schedule::Trigger::kInitial)));
  ASSERT_TRUE(has_seen({3}));
  write("{ half a docu");
  write(protocol::encode_plan(plan(2, schedule::Trigger::kRetune)));
  write(protocol::encode_plan(plan(4, schedule::Trigger::kRetune)));

  EXPECT_TRUE(has_seen({3, 4}));
}

}  // namespace file_source_test
}  // namespace weir::coordinator::test
