#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/pages.h"
#include "client/sort.h"
#include "client/view.h"

namespace gpuperf::client {

// A list as --sort, --limit and the filters ask for it. Notes below an empty table: `no_match`
// where filters were given, else `none`.
template <typename Request, typename Response, typename Row>
Result<std::string> draw_list(Connection& connection, const View& view, const Options& options,
                              const ListCall<Request, Response, Row>& list, Request request,
                              std::string (*render_table)(const std::vector<Row>&,
                                                          const TextStyle&),
                              std::string_view no_match, std::string_view none) {
  ASSIGN_OR_RETURN(*request.mutable_filter(), make_filter(options, read_wall_clock_ns()));
  const uint64_t read_limit = options.sort.empty() ? options.limit : 0;  // all, to sort them here
  ASSIGN_OR_RETURN(std::vector<Row> rows, read_pages(connection, list, request, read_limit));
  RETURN_IF_ERROR(sort_rows(rows, options.sort, options.limit));
  if (view.format != Format::kTable) return render_rows(rows, view.format, view.shape, view.style);
  std::string text = render_table(rows, view.style);
  if (rows.empty()) text += paint(has_filter(options) ? no_match : none, Tone::kDim, view.style);
  return text;
}

}  // namespace gpuperf::client
