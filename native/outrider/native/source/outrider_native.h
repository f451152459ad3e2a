/* The whole interface between the C++ here and its callers. C++ includes this file (abi.h) and Python reads it with
   cffi (outrider.native.library), so it holds declarations alone, and nothing for a preprocessor but OUTRIDER_NOEXCEPT,
   which is `noexcept` in C++ and nothing in C.

   Arrays are the caller's. Those of a model outlive its decoders, the pages of drafts outlive the drafts, and all
   others are read or written before the call returns.

   No exception leaves a function. One that can fail returns a status, and has then written no result. Other functions
   neither allocate memory nor fail. */

typedef enum outrider_status {
  OUTRIDER_OK,
  OUTRIDER_BAD_ID,        /* a token id is not in the vocabulary */
  OUTRIDER_BAD_POSITION,  /* a position is beyond the model's context */
  OUTRIDER_BAD_PAGE,      /* a sequence names a page that the pool does not have */
  OUTRIDER_BAD_TREE,      /* a tree has more than OUTRIDER_MOST_NODES nodes */
  OUTRIDER_BAD_LOGIT,     /* a logit is not a number, or not below the limit */
  OUTRIDER_OUT_OF_MEMORY, /* an allocation failed */
  OUTRIDER_NO_THREAD,     /* the system starts no further thread */
  OUTRIDER_FAILED         /* another error, which has no cause that a caller could remove */
} outrider_status;

/* Matmuls. */

/* What quantized values (quants) stand for: scale * (quant - zero) - minimum. See QuantFormat in quantized.py. */
typedef struct outrider_quant_format {
  int32_t bits, group, zero, has_minima, has_units;
} outrider_quant_format;

typedef enum outrider_weight_kind {
  OUTRIDER_FLOAT32,
  OUTRIDER_BFLOAT16,
  OUTRIDER_FLOAT16,
  OUTRIDER_QUANTIZED
} outrider_weight_kind;

typedef struct outrider_linear {
  const void* weight;           /* packed: see outrider_pack, outrider_pack_quants and outrider_pack_blocks */
  const float* bias;            /* [n] or null */
  int64_t n, k;                 /* output and input features */
  int32_t kind;                 /* outrider_weight_kind */
  outrider_quant_format format; /* of a quantized weight */
} outrider_linear;

typedef enum outrider_projection_limits { OUTRIDER_MOST_PARTS = 3 } outrider_projection_limits;

/* One or more weights that the same rows are multiplied by, as in a fused QKV projection: results stand side by side.
 */
typedef struct outrider_projection {
  outrider_linear parts[3];
  int32_t count;
} outrider_projection;

/* Bytes of a packed weight that is not quantized. */
int64_t outrider_packed_size(int64_t n, int64_t k, int32_t kind) OUTRIDER_NOEXCEPT;
/* Packs a weight [n, k] that is not quantized. */
void outrider_pack(void* to, const void* from, int64_t n, int64_t k, int32_t kind) OUTRIDER_NOEXCEPT;

/* The quantized weights of n output features: see Quants in quantized.py. */
typedef struct outrider_quants {
  const uint8_t* quants;                    /* [n, k] */
  const float *scales, *minima;             /* [n, k / group] */
  const float *scale_units, *minimum_units; /* [n, k / 256] */
  int64_t n, k;
  outrider_quant_format format;
} outrider_quants;

/* Output features of a packed quantized weight that lie together. */
typedef enum outrider_quant_limits { OUTRIDER_STRIP = 16 } outrider_quant_limits;

/* Bytes of a strip of a packed quantized weight; 0 where there is no matmul for the format. */
int64_t outrider_strip_size(int64_t k, const outrider_quant_format* format) OUTRIDER_NOEXCEPT;
/* Packs quantized weights; all calls for a weight but the last have whole strips. */
void outrider_pack_quants(void* to, const outrider_quants* quants) OUTRIDER_NOEXCEPT;

/* Types of blocks in GGUF files, by their names in ggml. */
typedef enum outrider_block_kind {
  OUTRIDER_Q4_0,
  OUTRIDER_Q4_1,
  OUTRIDER_Q5_0,
  OUTRIDER_Q5_1,
  OUTRIDER_Q8_0,
  OUTRIDER_Q4_K,
  OUTRIDER_Q5_K,
  OUTRIDER_Q6_K
} outrider_block_kind;

/* Blocks of n output features, each of which is one of the rows: see Blocks in quantized.py. */
typedef struct outrider_blocks {
  const uint8_t* blocks; /* of rows of k elements, row after row */
  const int64_t* rows;   /* [n] */
  int64_t n, k;
  int32_t kind; /* outrider_block_kind */
  outrider_quant_format format;
} outrider_blocks;

/* The same from blocks of ggml's types. */
outrider_status outrider_pack_blocks(void* to, const outrider_blocks* blocks) OUTRIDER_NOEXCEPT;

/* Pages of keys and values. */

typedef struct outrider_pool {
  void* data;           /* [layers, pages * page_size, 2, kv_heads, head_dim] */
  int64_t layer_stride; /* elements from a layer to the next */
  float* scales;        /* [layers, pages * page_size, 2, kv_heads] of keys and values in int8, else null */
  int32_t layers, pages, page_size, kv_heads, head_dim;
  int32_t packed; /* pairs of bfloat16 or of int8; else side by side, float32 or int8 */
} outrider_pool;

/* Moves n tokens: each slot of `places` gets the token that was at its source before, in all layers. Moves nothing
   where it fails. */
outrider_status outrider_move(const outrider_pool* pool, int64_t n, const int64_t* sources,
                              const int64_t* places) OUTRIDER_NOEXCEPT;

/* The decoder. */

typedef struct outrider_expert {
  outrider_projection gate_up, down;
} outrider_expert;

typedef struct outrider_layer {
  const float* attention_norm; /* [hidden] or null */
  outrider_projection qkv;
  const float* head_norm;   /* [heads + kv_heads, head_dim] or null */
  const float* key_balance; /* [heads + kv_heads, head_dim], factors behind the norms, or null */
  const float* rope;        /* [positions, head_dim / 2, 2]: cosine and sine */
  int32_t window;           /* latest positions that a row sees, its own included; 0 is all */
  outrider_projection output;
  const float* after_attention;      /* [hidden], norm of the attention's result, or null */
  const float* feed_forward_norm;    /* [hidden] or null */
  outrider_projection gate_up, down; /* where there are no experts */
  outrider_projection router;
  const outrider_expert* experts;  /* [experts] or null */
  const float* after_feed_forward; /* [hidden], norm of the block's result, or null */
} outrider_layer;

typedef struct outrider_model {
  int32_t hidden, heads, kv_heads, head_dim, intermediate, layers;
  int32_t is_bf16;                              /* keys and values may be kept in bfloat16 */
  int32_t threads;                              /* that run a step together */
  int32_t gelu;                                 /* whether the gate's activation is gelu; else silu */
  int32_t experts, active, expert_intermediate; /* of a layer, of a row, and the width of an expert */
  int32_t normed;                               /* whether the shares of a row's experts are divided by their sum */
  float eps;                                    /* of the norms */
  float query_scale, embedding_scale;
  int64_t vocabulary, positions;
  int64_t shared;              /* multiply-adds from which on a step is shared among the threads */
  outrider_linear embedding;   /* [vocabulary, hidden]; not packed unless quantized */
  const float* norm;           /* [hidden] */
  const float* feature_norm;   /* [hidden], of the features that an EAGLE-3 head's first layer reads behind the
                                  embedding; null for other models */
  int32_t normed_residual;     /* whether the stream then begins with the normed features; else with the features */
  const outrider_layer* layer; /* [layers] */
  outrider_projection logits;
} outrider_model;

typedef enum outrider_step_limits { OUTRIDER_MOST_NODES = 4096 } outrider_step_limits;

typedef struct outrider_sequence {
  const int32_t* pages;
  const int32_t* parents; /* [nodes], an earlier node or -1 at the top; null for a causal chunk */
  int32_t rows;           /* in this step */
  int32_t context;        /* tokens in front of the nodes */
  int32_t nodes;          /* rows of this step and of earlier ones; of a tree up to OUTRIDER_MOST_NODES */
  int32_t first_row;      /* in the step */
} outrider_sequence;

typedef struct outrider_step {
  const int64_t *ids, *positions; /* [rows] */
  const outrider_sequence* sequences;
  outrider_pool pool;
  float* hidden; /* [rows, hidden]: the result */
  int32_t count; /* of the sequences */
  int32_t rows;
  int32_t taps; /* number of states that are kept of each row */
  const int32_t*
      layers;    /* [taps]: the layer that a state enters; behind the last one comes the last norm, then the end */
  float* states; /* [rows, taps, hidden]: a further result */
  const float* features; /* [rows, hidden], of a model with a feature_norm */
} outrider_step;

typedef struct outrider_decoder outrider_decoder;

/* Whether the model's attention multiplies pairs: its pages of bfloat16 and int8 are packed then; else there is no
 * bfloat16. */
int32_t outrider_packs_pages(const outrider_model* model) OUTRIDER_NOEXCEPT;
outrider_status outrider_decoder_new(const outrider_model* model, outrider_decoder** decoder) OUTRIDER_NOEXCEPT;
void outrider_decoder_free(outrider_decoder* decoder) OUTRIDER_NOEXCEPT;
/* Where it fails, the keys and values of the step's rows are not to be read. */
outrider_status outrider_decoder_forward(outrider_decoder* decoder, const outrider_step* step) OUTRIDER_NOEXCEPT;
/* float32 [rows, vocabulary] of [rows, hidden] that `forward` wrote. */
outrider_status outrider_decoder_logits(outrider_decoder* decoder, const float* hidden, int64_t rows,
                                        float* out) OUTRIDER_NOEXCEPT;
/* float32 [rows, n] of rows [rows, k]: a further projection, of n output features, by the decoder's threads. */
outrider_status outrider_decoder_project(outrider_decoder* decoder, const outrider_projection* projection,
                                         const float* from, int64_t k, int64_t rows, float* out,
                                         int64_t n) OUTRIDER_NOEXCEPT;
/* float32 [rows, hidden] of ids of the vocabulary: what enters the first layer. */
void outrider_decoder_embed(const outrider_decoder* decoder, const int64_t* ids, int64_t rows,
                            float* out) OUTRIDER_NOEXCEPT;

/* The draw. */

/* Float32 [n, vocabulary] variates, a row for each seed and position. */
void outrider_variates(const uint64_t* seeds, const int64_t* positions, int64_t n, int64_t vocabulary,
                       float* out) OUTRIDER_NOEXCEPT;

typedef struct outrider_race_rows {
  const float* logits; /* [n, vocabulary] */
  const uint64_t* seeds;
  const int64_t* positions;
  const float* temperatures; /* [n], like seeds and positions */
  int64_t n, vocabulary;
} outrider_race_rows;

/* Writes int64 [n] tokens that rows draw, -1 where nothing can be drawn; greedy where the temperature is below
   `greedy_below`. OUTRIDER_BAD_LOGIT where a logit is not a number below `limit`. */
outrider_status outrider_race(const outrider_race_rows* rows, float greedy_below, float limit,
                              int64_t* tokens) OUTRIDER_NOEXCEPT;

/* Guesses. */

/* How the target draws; temperature 0 where it is greedy. */
typedef struct outrider_shaping {
  float temperature, top_p, min_p;
  int32_t top_k;
} outrider_shaping;

typedef struct outrider_rank_rows {
  float* logits; /* [n, ids] of a drafter; overwritten */
  const uint64_t* seeds;
  const int64_t* positions;
  const outrider_shaping* shapings; /* [n], like seeds and positions */
  const int64_t* targets;           /* [ids]: the target's id of each id of the drafter; null where they are equal */
  int64_t n, ids, vocabulary;       /* `vocabulary` of the target */
} outrider_rank_rows;

/* Writes the best guesses at each row's draw, best first: tokens of the target and their shares of the race, both
   [n, most], and how many there are, [n]. */
outrider_status outrider_rank(const outrider_rank_rows* rows, int32_t most, int32_t* tokens, float* shares,
                              int32_t* found) OUTRIDER_NOEXCEPT;

/* Trees of guesses, written one behind the other. */

typedef struct outrider_tree {
  int64_t number;       /* of the session */
  int32_t length;       /* tokens of its sequence in front of the tree */
  int32_t first, nodes; /* index of its first node in the arrays, and number of nodes */
} outrider_tree;

typedef struct outrider_trees {
  outrider_tree* trees;
  int32_t *tokens, *parents; /* a parent is the index of a node within its tree, -1 at the top */
  double* confidences;       /* of a node, given that its parent is right */
  int32_t count;             /* of the trees, written by each call */
} outrider_trees;

/* Trees that a draft model grows. */

typedef enum outrider_limits { OUTRIDER_MOST_CHILDREN = 16 } outrider_limits;

typedef struct outrider_draft_shape {
  int32_t children;       /* guesses below each node, up to OUTRIDER_MOST_CHILDREN */
  int32_t rows;           /* nodes grown in one run of the model, over all sessions */
  int32_t rows_each;      /* nodes grown in one run for a session */
  int32_t ahead;          /* most grown nodes of a session */
  int32_t prefill_rows;   /* decided tokens in one run */
  int32_t context_length; /* longest sequence that is guessed at */
  float least_value;      /* a node less likely than this is neither grown nor written */
  float row_cost;         /* time that a row adds to a run, as a share of the first row's */
} outrider_draft_shape;

typedef struct outrider_draft_opening {
  int64_t number;
  uint64_t seed;
  outrider_shaping shaping;
  const int32_t* tokens; /* [count], so far */
  int32_t count;
  int32_t most; /* nodes of the largest useful tree */
} outrider_draft_opening;

typedef struct outrider_drafts outrider_drafts;

/* `pool` has empty pages of the decoder's kind. Drafts whose call failed have no session. */
outrider_status outrider_drafts_new(outrider_decoder* decoder, const outrider_model* model, const outrider_pool* pool,
                                    const outrider_draft_shape* shape, outrider_drafts** drafts) OUTRIDER_NOEXCEPT;
void outrider_drafts_free(outrider_drafts* drafts) OUTRIDER_NOEXCEPT;
/* Starts a session, in place of one of the same number. */
outrider_status outrider_drafts_open(outrider_drafts* drafts, const outrider_draft_opening* opening) OUTRIDER_NOEXCEPT;
/* Appends decided tokens to a sequence of `length`; a session of another length ends. */
outrider_status outrider_drafts_commit(outrider_drafts* drafts, int64_t number, int32_t length, const int32_t* tokens,
                                       int32_t count) OUTRIDER_NOEXCEPT;
/* Grows nothing more for a session until tokens are decided again. */
void outrider_drafts_rest(outrider_drafts* drafts, int64_t number) OUTRIDER_NOEXCEPT;
void outrider_drafts_close(outrider_drafts* drafts, int64_t number) OUTRIDER_NOEXCEPT;
int32_t outrider_drafts_free_pages(const outrider_drafts* drafts) OUTRIDER_NOEXCEPT;
/* Whether a session has decided tokens that the model has not read. */
int32_t outrider_drafts_reading(const outrider_drafts* drafts) OUTRIDER_NOEXCEPT;
typedef struct outrider_draft_plan {
  int32_t rows; /* 0 where there is nothing to do */
  int32_t sequences;
} outrider_draft_plan;
/* Plans the next run; replaces a plan that was not run. No node less likely than `least` grows. */
outrider_status outrider_drafts_plan(outrider_drafts* drafts, float least, outrider_draft_plan* plan) OUTRIDER_NOEXCEPT;
/* Runs the model as last planned. */
outrider_status outrider_drafts_run(outrider_drafts* drafts) OUTRIDER_NOEXCEPT;
/* Writes the trees that have improved, each of at most `most` nodes. There must be room for one of each session. */
outrider_status outrider_drafts_write(outrider_drafts* drafts, int32_t most, outrider_trees* to) OUTRIDER_NOEXCEPT;

/* Trees from suffix automata. */

typedef struct outrider_suffix_shape {
  int32_t least_match; /* latest tokens that must have occurred before */
  int32_t tokens;      /* of a tenant's answers that are remembered */
  int32_t tenants;     /* tenants that are remembered */
} outrider_suffix_shape;

typedef struct outrider_suffix_opening {
  int64_t number;
  const int32_t* tokens; /* [count], so far */
  const char* tenant;    /* [tenant_size] bytes */
  int32_t count;
  int32_t prompt; /* how many of the tokens are the prompt */
  int32_t most;   /* guesses of a tree */
  int32_t tenant_size;
} outrider_suffix_opening;

/* Decided tokens of several sessions. */
typedef struct outrider_suffix_commits {
  const int64_t* numbers; /* [size] sessions */
  const int32_t* counts;  /* [size] tokens of each */
  const int32_t* tokens;  /* session after session */
  int64_t size;
} outrider_suffix_commits;

typedef struct outrider_suffixes outrider_suffixes;

/* Suffixes whose call failed have no session and remember no answer: also a failed `forget` forgets. */
outrider_status outrider_suffixes_new(const outrider_suffix_shape* shape,
                                      outrider_suffixes** suffixes) OUTRIDER_NOEXCEPT;
void outrider_suffixes_free(outrider_suffixes* suffixes) OUTRIDER_NOEXCEPT;
/* Starts a session, in place of one of the same number. */
outrider_status outrider_suffixes_open(outrider_suffixes* suffixes,
                                       const outrider_suffix_opening* opening) OUTRIDER_NOEXCEPT;
outrider_status outrider_suffixes_commit(outrider_suffixes* suffixes,
                                         const outrider_suffix_commits* commits) OUTRIDER_NOEXCEPT;
/* Forgets a session, and keeps its answer for the tenant's later ones. */
outrider_status outrider_suffixes_close(outrider_suffixes* suffixes, int64_t number) OUTRIDER_NOEXCEPT;
/* Drops the sessions and the answers of a tenant, whose name has `tenant_size` bytes; overwrites their memory. */
outrider_status outrider_suffixes_forget(outrider_suffixes* suffixes, const char* tenant,
                                         int32_t tenant_size) OUTRIDER_NOEXCEPT;
/* Reads a bounded number of new tokens, and writes a tree for each session whose tokens have changed. There must be
   room for one of each session. */
outrider_status outrider_suffixes_write(outrider_suffixes* suffixes, outrider_trees* to) OUTRIDER_NOEXCEPT;
/* Memory held for sequences and answers. */
int64_t outrider_suffixes_bytes(const outrider_suffixes* suffixes) OUTRIDER_NOEXCEPT;

/* The library. */

/* SHA-256 of this file, in hexadecimal, as it was when the library was compiled. */
const char* outrider_abi(void) OUTRIDER_NOEXCEPT;
/* Whether this machine lets the library run. */
int32_t outrider_usable(void) OUTRIDER_NOEXCEPT;
