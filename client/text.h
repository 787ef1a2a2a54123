#pragma once

// Text for people: safe to print on a terminal, measured in terminal columns, with human units.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace gpuperf::client {

// Of the lines below a heading.
inline constexpr std::string_view kIndent = "  ";

// The text with everything escaped that could move a cursor, change a colour, reorder or hide what
// is shown: control characters, bidirectional and invisible marks, bytes that are not UTF-8.
// Process names and file names come from workloads, so none of them reaches a terminal without
// this.
std::string make_printable(std::string_view text);

// Columns a terminal needs for text that make_printable returned.
int measure_width(std::string_view printable);

enum class Cut { kEnd, kStart, kMiddle };
// The text in at most `columns` columns, with "…" where something was cut off.
std::string truncate(std::string_view printable, int columns, Cut cut);

// Every line of a text in at most `columns` columns, with "…" where something was cut off; 0 = as
// it is. Colours that paint put in take no room and end with the line.
std::string cut_to_width(std::string_view text, int columns);

// The text's words in lines of at most `columns` columns, each behind `indent` and ended by a line
// break; 0 = in one line. A longer word has a line of its own. Empty without words.
std::string wrap(std::string_view printable, int columns, std::string_view indent);

bool is_utf8(std::string_view text);
// Escapes, inside JSON text, the characters that JSON allows raw and terminals obey.
std::string escape_json_controls(std::string_view json);

// "812 ns", "1.23 ms", "45.6 s", "12m03s", "5h12m", "3d04h": three digits, or two units.
std::string format_duration(uint64_t duration_ns);
// "1,234,567": exact, because counts are.
std::string format_count(uint64_t count);
// "45.3 MiB".
std::string format_bytes(uint64_t bytes);
// "0.42 %", "185 %": of 1.
std::string format_ratio(double ratio);
// Local time, "2026-05-01 10:00:00.123". 0 gives "-".
std::string format_local_time(uint64_t unix_ns);
// Offset of local time at that moment from UTC, "+02:00".
std::string format_utc_offset(uint64_t unix_ns);

uint64_t read_wall_clock_ns();

// The lines of a text, without their ends; one behind the last line break only where it has text.
std::vector<std::string_view> split_lines(std::string_view text);
std::string_view strip_blanks(std::string_view text);  // at both ends

}  // namespace gpuperf::client
