#include "daemon/view/report_html.h"

#include "daemon/view/html_table.h"
#include "tests/unit/matchers.h"
#include "tests/unit/text.h"
#include "tests/workloads/synthetic_capture.h"

namespace gpuperf {
namespace {

TEST(ReportHtmlTest, HasEverySection) {
  const std::string html = render_report(testing::make_synthetic_capture({}), {});

  for (const char* section :
       {"idle", "flames", "time", "kernels", "operations", "launches", "copies", "facts"}) {
    EXPECT_THAT(html, HasSubstr("<section id=\"" + std::string(section) + "\">"));
  }
  EXPECT_THAT(
      html,
      HasSubstr("<div class=\"card-title\">GPU 0 busy</div><div class=\"card-value\">9.0 %</div>"
                "<div class=\"card-note\">32.638 ms idle in 399 gaps</div>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"n\" data-v=\"1272900\">1,272.900</td>"));
}

TEST(ReportHtmlTest, AsksForNothingFromOutside) {
  const std::string html = render_report(testing::make_synthetic_capture({}), {});

  EXPECT_THAT(html, Not(HasSubstr("src=")));
  EXPECT_THAT(html, Not(HasSubstr("href")));
  EXPECT_THAT(html, HasSubstr("Content-Security-Policy\" content=\"default-src 'none';"));
}

TEST(ReportHtmlTest, HostileNamesStayNames) {
  const testing::SyntheticCapture options = {.stacks = 12, .work = 400};
  testing::SyntheticCapture hostile = options;
  hostile.is_hostile = true;
  const std::string plain_html = render_report(make_synthetic_capture(options), {});

  const std::string html = render_report(make_synthetic_capture(hostile), {});

  for (const char* part : {"<script", "</script", "<svg", "<style", "</style"}) {
    EXPECT_EQ(count(html, part), count(plain_html, part)) << part;
  }
  EXPECT_EQ(count(html, "<img"), 0u);
  EXPECT_EQ(html.find('\0'), std::string::npos);
}

TEST(ReportHtmlTest, LeavesOutWhatTheCaptureLacks) {
  const std::string html = render_report({}, {.title = "Empty & quiet"});

  EXPECT_THAT(html, HasSubstr("<h1>Empty &amp; quiet</h1>"));
  for (const char* section : {"idle", "kernels", "operations", "launches", "copies"}) {
    EXPECT_THAT(html, Not(HasSubstr("<section id=\"" + std::string(section) + "\">")));
  }
}

TEST(HtmlTableTest, EscapesAndMarksNumbers) {
  HtmlTable table({{"Name"}, {"Time", true}, {"Share", true}});
  table.begin_row();
  table.add_name("<b>\"x\"");
  table.add_time(1'234'567);
  table.add_share(1, 4);

  EXPECT_EQ(table.finish("A & B"),
            "<div class=\"table\"><table class=\"sortable\"><caption>A &amp; B</caption><thead><tr>"
            "<th scope=\"col\">Name</th><th scope=\"col\" class=\"n\">Time</th>"
            "<th scope=\"col\" class=\"n\">Share</th></tr></thead><tbody>\n"
            "<tr><td class=\"name\" "
            "title=\"&lt;b&gt;&quot;x&quot;\"><div>&lt;b&gt;&quot;x&quot;</div></td>"
            "<td class=\"n\" data-v=\"1234567\">1,234.567</td>"
            "<td class=\"n share\" data-v=\"1\">25.0 %<span class=\"bar\" "
            "style=\"width:25.0%\"></span></td>"
            "</tr>\n</tbody></table></div>\n");
}

}  // namespace
}  // namespace gpuperf
