#include "daemon/view/html_table.h"

#include <fmt/format.h>

#include "daemon/view/escape.h"

namespace gpuperf {

void HtmlTable::begin_row(std::string_view attributes) {
  if (!rows_.empty()) rows_ += "</tr>\n";
  rows_ += attributes.empty() ? "<tr>" : fmt::format("<tr {}>", attributes);
}

void HtmlTable::add_text(std::string_view text) {
  rows_ += fmt::format("<td>{}</td>", escape_markup(text));
}

void HtmlTable::add_name(std::string_view name) {
  const std::string escaped = escape_markup(name.substr(0, 2000));
  rows_ += fmt::format("<td class=\"name\" title=\"{0}\"><div>{0}</div></td>", escaped);
}

void HtmlTable::add_number(uint64_t value, std::string_view text) {
  rows_ += fmt::format("<td class=\"n\" data-v=\"{}\">{}</td>", value, escape_markup(text));
}

void HtmlTable::add_count(uint64_t value) { add_number(value, format_grouped(value, 0)); }

void HtmlTable::add_time(uint64_t time_ns) { add_number(time_ns, format_grouped(time_ns, 3)); }

void HtmlTable::add_share(uint64_t part, uint64_t whole) {
  const double percent =
      whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  rows_ += fmt::format(
      "<td class=\"n share\" data-v=\"{}\">{:.1f} %<span class=\"bar\" "
      "style=\"width:{:.1f}%\"></span></td>",
      part, percent, percent > 100 ? 100 : percent);
}

std::string HtmlTable::finish(std::string_view caption) const {
  std::string html =
      fmt::format("<div class=\"table\"><table class=\"sortable\"><caption>{}</caption><thead><tr>",
                  escape_markup(caption));
  for (const Column& column : columns_) {
    html += fmt::format("<th scope=\"col\"{}>{}</th>", column.is_number ? " class=\"n\"" : "",
                        escape_markup(column.title));
  }
  html += "</tr></thead><tbody>\n" + rows_ + (rows_.empty() ? "" : "</tr>\n");
  html += "</tbody></table></div>\n";
  return html;
}

}  // namespace gpuperf
