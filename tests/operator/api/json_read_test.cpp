// SPDX-License-Identifier: Apache-2.0
#include "operator/api/json_read.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weir::api {
namespace json_read_test {

using testing::ElementsAre;
using testing::IsEmpty;

const std::string kText =
    R"({"a":1, "b" : "x, \\\"}]" ,"c":{"a":2,"d":[1,{"e":null}]},"f":[ ], "g":true })";

std::vector<std::string> members(std::string_view object) {
  std::vector<std::string> all;
  const auto whole = each_member(object, [&](std::string_view key, std::string_view value) {
    all.push_back(std::string(key) + "=" + std::string(value));
  });
  return whole ? all : std::vector<std::string>{whole.error().message};
}

TEST(JsonRead, FindsAMemberAsItCame) {
  EXPECT_EQ(*json_member(kText, "a"), "1");
  EXPECT_EQ(*json_member(kText, "b"), R"("x, \\\"}]")");
  EXPECT_EQ(*json_member(kText, "c"), R"({"a":2,"d":[1,{"e":null}]})");
  EXPECT_EQ(*json_member(kText, "f"), "[ ]");
  EXPECT_EQ(*json_member(kText, "g"), "true");
  EXPECT_EQ(*json_member(kText, "d"), "") << "of an inner object";
  EXPECT_EQ(json_member(kText, "c")->data(), kText.data() + kText.find(R"({"a":2)"))
      << "a view of the text";
  for (const char* text : {"", "7", "[]", "null", R"({"b")"})
    EXPECT_FALSE(json_member(text, "a").ok()) << text;
}

TEST(JsonRead, GivesTheMembersOfAWholeObjectOnly) {
  EXPECT_THAT(members(kText), ElementsAre("a=1", R"(b="x, \\\"}]")",
                                          R"(c={"a":2,"d":[1,{"e":null}]})", "f=[ ]", "g=true"));
  EXPECT_THAT(members("{}"), IsEmpty());
  for (std::size_t size = 0; size + 1 < kText.size(); ++size)
    EXPECT_THAT(members(kText.substr(0, size)), ElementsAre("not JSON")) << size;
  for (const char* wrong : {R"({"a":1}})", R"({"a" 1})", R"({a:1})", R"({"a":1,,"b":2})"})
    EXPECT_THAT(members(wrong), ElementsAre("not JSON")) << wrong;
  EXPECT_THAT(members("[1]"), ElementsAre("not a JSON object"));
}

TEST(JsonRead, GivesTheElementsOfAWholeListOnly) {
  EXPECT_THAT(*json_elements(R"([1, "a,b", {"c":[]}])"),
              ElementsAre("1", R"("a,b")", R"({"c":[]})"));
  EXPECT_THAT(*json_elements(" [ ] "), IsEmpty());
  for (const char* wrong : {"[1", "[1]]", "{}", "", "[1,]"})
    EXPECT_FALSE(json_elements(wrong).ok()) << wrong;
}

TEST(JsonDocument, NamesTheFirstWrongTypeByItsPath) {
  JsonDocument document;
  ASSERT_TRUE(
      document.parse(R"({"a": [{"b": "x"}, {"b": 7}], "m": {"k": 1}, "n": 3000000000})").ok());
  const Field root = document.root();

  EXPECT_EQ(root["none"]["of"]["these"].integer(4), 4);
  EXPECT_EQ(document.problem(), "") << "missing is no wrong type";
  const auto items = root["a"].items();
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[0]["b"].text(), "x");
  EXPECT_EQ(items[1]["b"].text("y"), "y");
  EXPECT_EQ(document.problem(), "a[1].b: not a string");
  EXPECT_EQ(root["m"].text_map().at("k"), "");
  EXPECT_EQ(root["n"].integer64(), 3'000'000'000);
  EXPECT_EQ(root["n"].integer(5), 5);
  EXPECT_EQ(document.problem(), "a[1].b: not a string") << "the first one";
}

TEST(JsonDocument, IsAnObjectOfBoundedDepthAndNothingBehindIt) {
  const auto nested = [](int lists) {
    const auto count = static_cast<std::size_t>(lists);
    return R"({"a":)" + std::string(count, '[') + std::string(count, ']') + "}";
  };
  const auto problem = [](const std::string& text) {
    JsonDocument document;
    const auto parsed = document.parse(text);
    return parsed ? std::string() : parsed.error().message;
  };
  EXPECT_EQ(problem(nested(50)), "");
  EXPECT_EQ(problem(nested(70)), "nested deeper than 64");
  EXPECT_EQ(problem(R"({"a":1}})"), "not JSON");
  EXPECT_EQ(problem("[]"), "not a JSON object");
  EXPECT_EQ(problem(""), "not JSON");
  EXPECT_EQ(problem("{\"a\":\"\xff\"}"), "not JSON");
}

// A thread's documents share their parser's buffers one after the other; two at once have two.
TEST(JsonDocument, LivesBesideAnotherOne) {
  JsonDocument outer, inner;
  ASSERT_TRUE(outer.parse(R"({"a": "outer"})").ok());
  ASSERT_TRUE(inner.parse(R"({"a": "inner", "b": 1})").ok());
  EXPECT_EQ(outer.root()["a"].text(), "outer");
  EXPECT_EQ(inner.root()["a"].text(), "inner");
}

}  // namespace json_read_test
}  // namespace weir::api
