#include "report/page/page.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "report/embedded.hpp"
#include "report/page/brief.hpp"
#include "report/page/drawings.hpp"
#include "report/page/html.hpp"
#include "report/page/other_clusters.hpp"
#include "report/runs.hpp"

namespace parsim::report {

namespace {

/// A word of a command line as a shell reads it.
std::string shell_word(const std::string& word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Without the blanks that a terminal indents it by.
std::string_view trimmed(std::string_view line) {
  return line.substr(std::min(line.find_first_not_of(' '), line.size()));
}

/// The notes of the report without those of the sections.
std::vector<std::string> general_notes(const Page& page) {
  std::vector<std::string> notes;
  for (const std::string& note : page.document.notes) {
    const bool in_section = std::any_of(
        page.sections.begin(), page.sections.end(), [&](const StrategySection& section) {
          const std::vector<std::string>& own = section.result.notes;
          return note.starts_with(section.result.strategy + ": ") ||
                 std::find(own.begin(), own.end(), note) != own.end();
        });
    if (!in_section) notes.push_back(note);
  }
  return notes;
}

/// "Same plan: hybrid, layer-wise."
std::string namesakes(const Page& page, const std::string& strategy) {
  std::vector<std::string> names;
  for (const StrategySection& section : page.sections) {
    if (section.result.same_plan_as == strategy) names.push_back(section.result.strategy);
  }
  return names.empty() ? "" : fmt::format("<p>Same plan: {}.</p>\n", html(join(names)));
}

/// `place`: 0 for the best plan, which is open; the first two have timelines that zoom.
std::string section_of(const Page& page, const StrategySection& section, int place) {
  const bool open = place == 0;
  const experiment::RunResult& result = section.result;
  std::string out = fmt::format("<details class=strategy{}><summary><h3>{}</h3> ",
                                open ? " open" : "", html_name(result.strategy));
  if (!result.error.empty()) {
    return out + fmt::format("no plan</summary><p>{}</p></details>\n", html(result.error));
  }
  out += fmt::format("{}; {} per step, {} samples/s, {}</summary>\n",
                     html(strategies::short_text(result.degrees)), to_text(result.step_time),
                     three_digits(result.samples_per_second),
                     html(experiment::memory_verdict(result)));
  out += namesakes(page, result.strategy);
  const Cluster& cluster = page.experiment.cluster;
  out += "<h4>Stages</h4>\n" + draw_stages(page.experiment.network, cluster, section.plan, result);
  if (open) {
    out +=
        "<p class=key>tp: GPUs that share every layer; dp: replicas, each with its own "
        "samples.</p>\n";
  }
  out += "<h4>Time and memory of the devices</h4>\n" + draw_devices(result, open);
  if (!section.bars.tracks.empty()) {
    out += "<h4>Timeline of a step</h4>\n";
    out += draw_timeline(section.bars, cluster,
                         place < 2 ? TimelineSize{2500, 2500} : TimelineSize{900, 0});
    out += timeline_key();
    out +=
        "<p class=key>×16: so many devices do the same at the same times, up to one hundredth "
        "of the step.</p>\n";
  }
  out += "<h4>Links</h4>\n" + link_table(cluster, section.hop_use);
  if (!result.notes.empty()) {
    out += "<details><summary>how the plan was found</summary>" + list_of(result.notes, "notes") +
           "</details>\n";
  }
  return out + "</details>\n";
}

/// The table of the report; its means are of all GPUs, those of the chart's bars of the GPUs that
/// compute, which the titles say.
Table all_numbers(const Page& page) {
  Table table = page.document.tables.front();
  for (Column& column : table.columns) {
    if (!column.key.starts_with("mean_")) continue;
    const std::size_t unit = std::min(column.title.find(" ["), column.title.size());
    column.title.insert(unit, ", all GPUs");
  }
  return table;
}

constexpr std::string_view meanings = R"(<dl class=words>
<dt>step<dd>one training step: forward, backward, sums of gradients, update
<dt>rank<dd>one GPU of the job, as in NCCL; timelines draw ranks that do the same once
<dt>degrees<dd>how many ways the work is divided: tp, pp and dp
<dt>tp (tensor parallel)<dd>so many GPUs share every layer
<dt>pp (pipeline parallel)<dd>so many stages, each with some of the layers, one after the other
<dt>dp (data parallel)<dd>so many replicas, each with samples of its own
<dt>mb (micro-batches)<dd>parts of a replica's batch that go through the stages one after the other
<dt>mixed<dd>tp or dp differ between layers or stages
<dt>zero<dd>what replicas divide among them: 1 optimizer state, 2 also gradients, 3 also weights;
where the micro-batches of a pipeline add up in them, gradients stay whole
<dt>90 %<dd>nine of ten measured steps are expected in this interval
<dt>compute<dd>a kernel runs on the GPU
<dt>exposed communication<dd>the GPU communicates while none of its kernels runs
<dt>idle<dd>the GPU waits; compute, exposed communication and idle add up to the step; bars show the mean of
the GPUs that compute, the table of all numbers the mean of all GPUs
<dt>bubble<dd>a stage waits for another one, at the beginning and the end of the pipeline
<dt>imbalance<dd>a GPU has less to compute than the busiest one, and waits
<dt>MFU<dd>the model's FLOPs over what the GPUs could do in the step at their peak
<dt>use of a link<dd>bytes carried in one direction / (rate × step)
<dt>memory<dd>weights, gradients, optimizer state, activations kept for backward, communication
buffers; the headroom is for libraries' workspaces and fragmentation. Tight: above 90 % of what may
be used, which is all but the headroom
</dl>
)";

}  // namespace

std::string command_text(const std::vector<std::string>& words) {
  std::string command = "parsim";
  for (const std::string& word : words) command += " " + shell_word(word);
  return command;
}

std::string list_of(const std::vector<std::string>& lines, std::string_view css) {
  if (lines.empty()) return {};
  std::string out = fmt::format("<ul class={}>", css);
  for (const std::string& line : lines) out += fmt::format("<li>{}", html(line));
  return out + "</ul>\n";
}

std::string_view file_named(std::string_view end) {
  for (const EmbeddedFile& file : report_files()) {
    if (file.path.ends_with(end)) return file.text;
  }
  throw BrokenInvariant("the page's files are built into the program");
}

std::string page_head(const std::string& title, bool timelines, std::string_view more_style) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=en><meta charset=utf-8><title>{}</title>\n<meta name=viewport "
      "content=\"width=device-width\"><meta name=generator content=\"parsim {}\">\n<meta "
      "http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'\">\n<style>\n{}{}{}</style>\n<header><h1>{}</h1>\n",
      title, version(), file_named("style.css"), timelines ? file_named("timeline.css") : "",
      more_style, title);
}

std::string page_end(const std::vector<std::string>& command, bool timelines,
                     const std::string& more) {
  std::string out = fmt::format("<pre id=command>{}</pre>\n{}</main>\n<script>\n{}</script>\n",
                                html(command_text(command), 20'000), more, file_named("table.js"));
  if (timelines) out += fmt::format("<script>\n{}</script>\n", file_named("timeline.js"));
  return out;
}

std::string_view timeline_key() {
  return R"(<p class=key>Compute: <i class=k0></i>&nbsp;forward <i class=k1></i>&nbsp;backward <i class=k2></i>&nbsp;update,
copies. Communication: <i class=k3></i>&nbsp;gradients, ZeRO's weights <i class=k4></i>&nbsp;layers' tensors <i class=k5></i>&nbsp;pipeline.</p>
)";
}

std::string render_page(const Page& page) {
  const experiment::Experiment& experiment = page.experiment;
  const std::string title = page.title.empty()
                                ? fmt::format("{} on {}", html_name(experiment.network.name),
                                              html_name(experiment.cluster.name))
                                : html(page.title, 200);
  std::vector<experiment::RunResult> results;
  for (const StrategySection& section : page.sections) results.push_back(section.result);
  const bool timelines =
      std::any_of(page.sections.begin(), page.sections.end(),
                  [](const StrategySection& section) { return !section.bars.tracks.empty(); });

  std::string out = page_head(title, timelines);
  for (const std::string& line : page.document.answer) {
    out += fmt::format("<p class=answer>{}\n", html(unbroken(trimmed(line))));
  }
  for (const std::string& line : page.document.head) out += fmt::format("<p>{}\n", html(line));
  out += "</header>\n<main>\n";
  out += fmt::format("<div{}>\n<section>", results.size() > 1 ? " class=split" : "") +
         brief_of(page) + "</section>\n<section>" + draw_steps(results) + help_of(page) +
         other_clusters_of(page) + "</section>\n</div>\n" +
         list_of(page.document.warnings, "warnings");
  out += why_of(page);
  out += std::string("<h2>What the words mean</h2>\n") + std::string(meanings);
  const std::string costs = draw_costs(results);
  if (!costs.empty()) out += "<h2>What it costs</h2>\n" + costs;
  out += results.size() == 1 ? "<h2>The plan</h2>\n" : "<h2>Plans</h2>\n";
  int place = 0;
  for (const StrategySection& section : page.sections) {
    if (!section.result.same_plan_as.empty()) continue;
    out += section_of(page, section, place++);
  }
  out += "<h2>All numbers</h2>\n" + html_table(all_numbers(page), true);
  if (const auto jitter = jitter_table(experiment, results)) out += html_table(*jitter, true);
  if (const auto goodput = goodput_table(results)) out += html_table(*goodput, true);
  if (page.scaling != nullptr) out += "<h2>Scaling</h2>\n" + draw_scaling(*page.scaling);
  out += "<h2>How sure, and on what data</h2>\n" + list_of(general_notes(page), "notes");
  return out + "<h2>Command and inputs</h2>\n" +
         page_end(
             experiment.request.command, timelines,
             fmt::format("<details><summary>resolved inputs</summary><pre>{}</pre></details>\n",
                         html_lines(inputs_json(experiment))));
}

}  // namespace parsim::report
