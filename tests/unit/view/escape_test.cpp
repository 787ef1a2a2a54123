#include "daemon/view/escape.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace gpuperf {
namespace {

constexpr char kReplacement[] = "\xef\xbf\xbd";

TEST(EscapeTest, MarkupHoldsNoMarkup) {
  EXPECT_EQ(escape_markup("</script><img onerror=\"x\" a='b'>&amp;]]>"),
            "&lt;/script&gt;&lt;img onerror=&quot;x&quot; a=&#39;b&#39;&gt;&amp;amp;]]&gt;");
}

TEST(EscapeTest, MarkupHoldsOnlyCharactersOfXml) {
  const std::string bad = kReplacement;
  EXPECT_EQ(escape_markup(std::string("a\0b\x01\x1f\x7f\tc\n", 9)),
            "a" + bad + "b" + bad + bad + bad + "\tc\n");
  EXPECT_EQ(escape_markup("\xff\xc3 \xef\xbf\xbf\xef\xbf\xbe \xe2\x82\xac"),
            bad + bad + " " + bad + bad + " \xe2\x82\xac");
}

TEST(EscapeTest, JsonIsReadBackAsItWas) {
  const std::string text = "plain \"quoted\" back\\slash </script> ]]> & ' \n\t\x7f \xe2\x82\xac";
  EXPECT_EQ(nlohmann::json::parse(to_json_string(text)).get<std::string>(), text);
  EXPECT_EQ(nlohmann::json::parse(to_json_string(std::string("\0\xff", 2))).get<std::string>(),
            std::string(kReplacement) + kReplacement);
}

TEST(EscapeTest, JsonMayStandInAnyScript) {
  EXPECT_EQ(to_json_string("</script>]]>&'<!--\xe2\x80\xa8"),
            "\"\\u003c/script\\u003e]]\\u003e\\u0026\\u0027\\u003c!--" + std::string(kReplacement) +
                "\"");
}

TEST(EscapeTest, GroupsDigits) {
  EXPECT_EQ(format_grouped(0, 3), "0.000");
  EXPECT_EQ(format_grouped(999, 0), "999");
  EXPECT_EQ(format_grouped(1'000, 0), "1,000");
  EXPECT_EQ(format_grouped(1'234'567'089, 3), "1,234,567.089");
}

}  // namespace
}  // namespace gpuperf
