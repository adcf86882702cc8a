// Writes the full logits of a model as raw float32: one row for each prompt, then one for each further step.
//
// In: the path of a job file, whitespace-separated words (audit/dumper.py writes it):
//     model PATH  out FOLDER  ctx N  batch N  ubatch N  threads N  gpu_layers N  swa_full 0|1
//     then for each capture:  capture NAME  rows N  prompt COUNT ID...  forced COUNT ID...
// Out: FOLDER/NAME.f32, and on standard output a line for each fact. Tokens are greedy, the lowest id of equals, or the
// forced ones. Every capture has a context of its own, so that nothing of the one before is left. Sizes are never read
// from the files: the lines say them. What llama.cpp logs goes to standard error.

#include "llama.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <set>
#include <string>
#include <vector>

namespace {

struct Capture {
    std::string name;
    int rows = 0;
    std::vector<llama_token> prompt;
    std::vector<llama_token> forced;
};

struct Job {
    std::string model, out;
    int ctx = 0, batch = 0, ubatch = 0, threads = 0, gpu_layers = 0, swa_full = 0;
    std::vector<Capture> captures;
};

[[noreturn]] void fail(const std::string & message) {
    std::cerr << "dump: " << message << std::endl;
    std::exit(3);
}

std::vector<llama_token> read_ids(std::istream & in) {
    size_t count = 0;
    in >> count;
    std::vector<llama_token> ids(count);
    for (auto & id : ids) {
        in >> id;
    }
    return ids;
}

Job read_job(const char * path) {
    std::ifstream in(path);
    Job job;
    std::string word;
    while (in >> word) {
        if (word == "model") in >> job.model;
        else if (word == "out") in >> job.out;
        else if (word == "ctx") in >> job.ctx;
        else if (word == "batch") in >> job.batch;
        else if (word == "ubatch") in >> job.ubatch;
        else if (word == "threads") in >> job.threads;
        else if (word == "gpu_layers") in >> job.gpu_layers;
        else if (word == "swa_full") in >> job.swa_full;
        else if (word == "capture") { job.captures.emplace_back(); in >> job.captures.back().name; }
        else if (word == "rows") in >> job.captures.back().rows;
        else if (word == "prompt") job.captures.back().prompt = read_ids(in);
        else if (word == "forced") job.captures.back().forced = read_ids(in);
        else fail("unknown word " + word);
    }
    if (!in.eof() || job.model.empty() || job.captures.empty()) fail("the job cannot be read");
    return job;
}

void print_libraries() {
    std::ifstream maps("/proc/self/maps");
    std::set<std::string> seen;
    std::string line;
    while (std::getline(maps, line)) {
        const auto slash = line.find('/');
        if (slash == std::string::npos || line.find(".so", slash) == std::string::npos) continue;
        if (seen.insert(line.substr(slash)).second) std::cout << "library " << line.substr(slash) << "\n";
    }
}

void decode(llama_context * ctx, std::vector<llama_token> & ids, size_t batch) {
    for (size_t first = 0; first < ids.size(); first += batch) {
        const auto count = (int32_t) std::min(batch, ids.size() - first);
        if (llama_decode(ctx, llama_batch_get_one(ids.data() + first, count)) != 0) fail("llama_decode failed");
    }
}

void capture(llama_model * model, const Job & job, Capture & what) {
    auto params = llama_context_default_params();
    params.n_ctx = job.ctx;
    params.n_batch = job.batch;
    params.n_ubatch = job.ubatch;
    params.n_threads = params.n_threads_batch = job.threads;
    params.n_seq_max = 1;
    params.swa_full = job.swa_full != 0;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_ENABLED;
    llama_context * ctx = llama_init_from_model(model, params);
    if (ctx == nullptr) fail("no context");
    const int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(model));
    const std::string path = job.out + "/" + what.name + ".f32";
    FILE * file = std::fopen(path.c_str(), "wb");
    if (file == nullptr) fail("cannot write " + path);
    std::vector<llama_token> tokens;
    auto next = what.prompt;
    for (int row = 0; row < what.rows; row++) {
        decode(ctx, next, job.batch);
        const float * logits = llama_get_logits_ith(ctx, -1);
        if (logits == nullptr) fail("no logits");
        if (std::fwrite(logits, sizeof(float), vocabulary, file) != (size_t) vocabulary) fail("cannot write " + path);
        int best = 0;
        for (int id = 1; id < vocabulary; id++) {
            if (logits[id] > logits[best]) best = id;
        }
        tokens.push_back(what.forced.empty() ? best : what.forced[row]);
        next = { tokens.back() };
    }
    if (std::fclose(file) != 0) fail("cannot write " + path);
    llama_free(ctx);
    std::cout << "capture " << what.name << " " << what.rows << " " << vocabulary;
    for (const auto token : tokens) std::cout << " " << token;
    std::cout << std::endl;
}

}  // namespace

int main(int argc, char ** argv) {
    if (argc != 2) fail("usage: determinism-dump JOB");
    Job job = read_job(argv[1]);
    llama_backend_init();
    std::cerr << "system_info: " << llama_print_system_info() << std::endl;
    auto params = llama_model_default_params();
    params.n_gpu_layers = job.gpu_layers;
    llama_model * model = llama_model_load_from_file(job.model.c_str(), params);
    if (model == nullptr) fail("the model cannot be loaded");
    print_libraries();
    for (auto & what : job.captures) capture(model, job, what);
    llama_model_free(model);
    std::cout << "end" << std::endl;
    return 0;
}
