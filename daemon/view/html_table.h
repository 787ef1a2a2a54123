#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace gpuperf {

// A table of a page. Columns are sorted by clicks where the page's script runs.
//
// A value. Escapes what it is given.
class HtmlTable {
 public:
  struct Column {
    std::string_view title;
    bool is_number = false;
  };
  explicit HtmlTable(std::initializer_list<Column> columns) : columns_(columns) {}

  void add_column(const Column& column) { columns_.push_back(column); }  // before the first row
  void begin_row(std::string_view attributes = "");                      // ours: not escaped
  void add_text(std::string_view text);
  void add_name(std::string_view name);  // long ones are folded in the page, whole in its title
  void add_number(uint64_t value, std::string_view text);
  void add_count(uint64_t value);
  void add_time(uint64_t time_ns);                // as microseconds
  void add_share(uint64_t part, uint64_t whole);  // with a bar
  std::string finish(std::string_view caption) const;

 private:
  std::vector<Column> columns_;
  std::string rows_;
};

}  // namespace gpuperf
