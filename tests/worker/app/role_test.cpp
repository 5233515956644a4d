// SPDX-License-Identifier: Apache-2.0
// Who coordinates is what the operator says last; an answer from the past changes nothing.
#include "worker/app/role.h"

#include <optional>
#include <string>

#include <gtest/gtest.h>

namespace weir::app {
namespace role_test {

using protocol::CoordinatorPlace;
using Follows = RoleChange::Follows;

constexpr auto kMe = "uid-1", kOther = "uid-2";

CoordinatorPlace place(const std::string& uid, std::int64_t term) {
  return {.pod = "pod", .pod_uid = uid, .address = "10.0.0.2:7070", .term = term};
}

TEST(Role, FollowsTheAnswerOfTheNewestTerm) {
  struct Case {
    const char* what;
    std::int64_t term;  // of this worker
    bool coordinates;
    std::optional<CoordinatorPlace> named;
    RoleChange change;
  };
  for (const Case& one : {
           Case{"an operator of an older release", 1, false, {}, {}},
           Case{"the same, to a coordinator", 1, true, {}, {}},
           Case{"a replica is behind", 3, false, place(kOther, 2), {}},
           Case{"behind, and it names this worker", 3, false, place(kMe, 2), {}},
           Case{"behind, and this worker coordinates", 3, true, place(kOther, 2), {}},
           Case{"nothing is new", 2, false, place(kOther, 2), {.follows = Follows::kNamed}},
           Case{"nothing is new to the coordinator",
                2,
                true,
                place(kMe, 2),
                {.keeps = true, .follows = Follows::kItself}},
           Case{"another one is named",
                2,
                false,
                place(kOther, 3),
                {.rises = true, .follows = Follows::kNamed}},
           Case{"another one is named than this worker",
                2,
                true,
                place(kOther, 3),
                {.rises = true, .stops = true, .follows = Follows::kNamed}},
           Case{"the next pod of index 0, in the first term",
                1,
                true,
                place(kOther, 1),
                {.stops = true, .follows = Follows::kNamed}},
           Case{"this worker is named",
                1,
                false,
                place(kMe, 2),
                {.rises = true, .begins = true, .follows = Follows::kItself}},
           Case{"it is named, and could not begin before",
                2,
                false,
                place(kMe, 2),
                {.begins = true, .follows = Follows::kItself}},
           Case{"it is named again, some terms later",
                2,
                true,
                place(kMe, 4),
                {.rises = true, .stops = true, .begins = true, .follows = Follows::kItself}},
       }) {
    EXPECT_EQ(
        change_of({.pod_uid = kMe, .term = one.term, .coordinates = one.coordinates}, one.named),
        one.change)
        << one.what;
  }
}

TEST(Role, OfTheFirstCoordinatorIsThatOfIndexZeroUntilOneIsNamed) {
  EXPECT_TRUE(coordinates_first(kMe, 0, {}));
  EXPECT_FALSE(coordinates_first(kMe, 1, {}));
  EXPECT_TRUE(coordinates_first(kMe, 1, place(kMe, 2)));
  EXPECT_FALSE(coordinates_first(kMe, 0, place(kOther, 2)));
  EXPECT_FALSE(coordinates_first(kMe, 0, place(kOther, 1))) << "this pod is being deleted";
}

TEST(Role, TheFirstCoordinatorIsFoundByItsName) {
  const std::string name = "gpt-gpu-0.gpt:7070";
  EXPECT_EQ(address_of(place(kOther, 1), name), name) << "another pod may have it soon";
  EXPECT_EQ(address_of(place(kOther, 2), name), "10.0.0.2:7070");
  auto unknown = place(kOther, 2);
  unknown.address.clear();
  EXPECT_EQ(address_of(unknown, name), name);
}

}  // namespace role_test
}  // namespace weir::app
