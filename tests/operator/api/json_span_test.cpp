// SPDX-License-Identifier: Apache-2.0
#include "operator/api/json_span.h"

#include <gtest/gtest.h>

namespace weir::api {
namespace {

constexpr auto kText =
    R"( {"a" : 1 , "b":"x, \\\"}]", "c": {"a":2,"d":[1,{"e":null}]} ,"f":[ ],"g":true} )";

TEST(JsonSpan, FindsMembersOfTheOutermostObject) {
  EXPECT_EQ(json_member(kText, "a"), "1");
  EXPECT_EQ(json_member(kText, "b"), R"("x, \\\"}]")");
  EXPECT_EQ(json_member(kText, "c"), R"({"a":2,"d":[1,{"e":null}]})");
  EXPECT_EQ(json_member(json_member(kText, "c"), "d"), R"([1,{"e":null}])");
  EXPECT_EQ(json_member(kText, "f"), "[ ]");
  EXPECT_EQ(json_member(kText, "g"), "true");
  EXPECT_EQ(json_member(kText, "d"), "");
  EXPECT_EQ(json_member(kText, "e"), "");
  for (const char* text : {"", "[]", "1", "{", R"({"a)", R"({"a":)", R"({a:1})"})
    EXPECT_EQ(json_member(text, "a"), "") << text;
}

TEST(JsonSpan, GivesAllMembersOfAWholeObjectOnly) {
  const auto all = json_members(kText);
  ASSERT_TRUE(all.has_value());
  ASSERT_EQ(all->size(), 5U);
  EXPECT_EQ((*all)[3].first, R"("f")");
  EXPECT_TRUE(json_members("{}")->empty());
  const std::string_view text(kText);
  for (std::size_t size = 0; size + 1 < text.size(); ++size)
    EXPECT_FALSE(json_members(text.substr(0, size)).has_value()) << size;
  for (const char* wrong : {"{} {}", "{]", R"({"a":1]})", "null"})
    EXPECT_FALSE(json_members(wrong).has_value()) << wrong;
}

TEST(JsonSpan, GivesElementsCharactersAndDepth) {
  EXPECT_EQ(json_elements(R"([1, "a,b", {"c":[]}])"),
            (std::vector<std::string_view>{"1", R"("a,b")", R"({"c":[]})"}));
  EXPECT_TRUE(json_elements(" [ ] ")->empty());
  EXPECT_FALSE(json_elements("[1").has_value());
  EXPECT_EQ(json_characters(R"("abc")"), "abc");
  EXPECT_EQ(json_characters(R"("a\\nb")"), "");
  EXPECT_EQ(json_characters("1"), "");
  EXPECT_EQ(json_depth(R"({"a":[{"b":"{{{{"}]})"), 3);
  EXPECT_EQ(json_depth("1"), 0);
}

}  // namespace
}  // namespace weir::api
