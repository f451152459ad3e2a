/* The whole interface between the C++ here and its callers. C++ includes this file (abi.h) and Python reads it with cffi
   (outrider.native.library), so it holds declarations alone, and nothing for a preprocessor.

   Arrays are the caller's. Those of a model outlive its decoders, the pages of drafts outlive the drafts, and all others
   are read or written before the call returns. */

/* Products. */

/* What codes stand for: scale * (code - zero) - minimum. See CodeFormat in quantized.py. */
typedef struct outrider_code_format {
  int32_t bits, group, zero, has_minima, has_units;
} outrider_code_format;

typedef enum outrider_weight_kind {
  OUTRIDER_FLOAT32,
  OUTRIDER_BFLOAT16,
  OUTRIDER_FLOAT16,
  OUTRIDER_CODES
} outrider_weight_kind;

typedef struct outrider_linear {
  const void *weight; /* packed: see outrider_pack and outrider_pack_codes */
  const float *bias;  /* [n] or null */
  int64_t n, k;       /* output and input features */
  int32_t kind;       /* outrider_weight_kind */
  outrider_code_format format; /* of codes */
} outrider_linear;

typedef enum outrider_product_limits { OUTRIDER_MOST_PARTS = 3 } outrider_product_limits;

/* Products of the same rows, whose results stand side by side. */
typedef struct outrider_product {
  outrider_linear parts[3];
  int32_t count;
} outrider_product;

/* Bytes of a packed weight that is not in codes. */
int64_t outrider_packed_size(int64_t n, int64_t k, int32_t kind);
/* Packs a weight [n, k] that is not in codes. */
void outrider_pack(void *to, const void *from, int64_t n, int64_t k, int32_t kind);

/* Codes of n output features: see Codes in quantized.py. */
typedef struct outrider_codes {
  const uint8_t *codes;                        /* [n, k] */
  const float *scales, *minima;                /* [n, k / group] */
  const float *scale_units, *minimum_units;    /* [n, k / 256] */
  int64_t n, k;
  outrider_code_format format;
} outrider_codes;

/* Output features of packed codes that lie together. */
typedef enum outrider_code_limits { OUTRIDER_STRIP = 16 } outrider_code_limits;

/* Bytes of a strip of packed codes; 0 where there is no product for such codes. */
int64_t outrider_strip_size(int64_t k, const outrider_code_format *format);
/* Packs codes; all calls for a weight but the last have whole strips. */
void outrider_pack_codes(void *to, const outrider_codes *codes);

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
  const uint8_t *blocks; /* of rows of k elements, row after row */
  const int64_t *rows;   /* [n] */
  int64_t n, k;
  int32_t kind; /* outrider_block_kind */
  outrider_code_format format;
} outrider_blocks;

/* Packs blocks as the codes that they stand for; all calls for a weight but the last have whole strips. */
void outrider_pack_blocks(void *to, const outrider_blocks *blocks);

/* Pages of keys and values. */

typedef struct outrider_pool {
  void *data;           /* [layers, pages * page_size, 2, kv_heads, head_dim] */
  int64_t layer_stride; /* elements from a layer to the next */
  float *scales;        /* [layers, pages * page_size, 2, kv_heads] of codes in int8, else null */
  int32_t layers, pages, page_size, kv_heads, head_dim;
  int32_t packed; /* pairs of bfloat16 or of codes; else side by side, float32 or codes */
} outrider_pool;

/* Moves n tokens: each slot of `places` gets the token that was at its source before, in all layers. */
void outrider_move(const outrider_pool *pool, int64_t n, const int64_t *sources, const int64_t *places);

/* The decoder. */

typedef struct outrider_expert {
  outrider_product gate_up, down;
} outrider_expert;

typedef struct outrider_layer {
  const float *attention_norm; /* [hidden] or null */
  outrider_product qkv;
  const float *head_norm; /* [heads + kv_heads, head_dim] or null */
  const float *key_balance; /* [heads + kv_heads, head_dim], factors behind the norms, or null */
  const float *turns;     /* [positions, head_dim / 2, 2]: cosine and sine */
  int32_t window;         /* latest positions that a row sees, its own included; 0 is all */
  outrider_product output;
  const float *after_attention;   /* [hidden], norm of the attention's result, or null */
  const float *feed_forward_norm; /* [hidden] or null */
  outrider_product gate_up, down; /* where there are no experts */
  outrider_product router;
  const outrider_expert *experts;    /* [experts] or null */
  const float *after_feed_forward;   /* [hidden], norm of the block's result, or null */
} outrider_layer;

typedef struct outrider_model {
  int32_t hidden, heads, kv_heads, head_dim, intermediate, layers;
  int32_t is_bf16; /* keys and values may be kept in bfloat16 */
  int32_t threads; /* that run a step together */
  int32_t gelu;    /* whether the gate's activation is gelu; else silu */
  int32_t experts, active, expert_intermediate; /* of a layer, of a row, and the width of an expert */
  int32_t normed;  /* whether the shares of a row's experts are divided by their sum */
  float eps;       /* of the norms */
  float query_scale, embedding_scale;
  int64_t vocabulary, positions;
  int64_t shared;        /* products, rows times weights, from which on a step is shared among the threads */
  outrider_linear embedding; /* [vocabulary, hidden]; not packed unless in codes */
  const float *norm;     /* [hidden] */
  const outrider_layer *layer; /* [layers] */
  outrider_product logits;
} outrider_model;

typedef struct outrider_sequence {
  const int32_t *pages;
  const int32_t *parents; /* [nodes], -1 at the top; null for a causal chunk */
  int32_t rows;           /* in this step */
  int32_t context;        /* tokens in front of the nodes */
  int32_t nodes;          /* rows of this step and of earlier ones */
  int32_t first_row;      /* in the step */
} outrider_sequence;

typedef struct outrider_step {
  const int64_t *ids, *positions; /* [rows] */
  const outrider_sequence *sequences;
  outrider_pool pool;
  float *hidden; /* [rows, hidden]: the result */
  int32_t count; /* of the sequences */
  int32_t rows;
  int32_t taps;          /* number of states that are kept of each row */
  const int32_t *layers; /* [taps]: the layer that a state enters; behind the last one comes the last norm, then the end */
  float *states;         /* [rows, taps, hidden]: a further result */
} outrider_step;

typedef enum outrider_fault {
  OUTRIDER_NO_FAULT,
  OUTRIDER_BAD_ID,
  OUTRIDER_BAD_POSITION,
  OUTRIDER_BAD_PAGE
} outrider_fault;

typedef struct outrider_decoder outrider_decoder;

/* Whether the model multiplies pairs: its pages of bfloat16 and int8 are packed then; else there is no bfloat16. */
int32_t outrider_packs_pages(const outrider_model *model);
outrider_decoder *outrider_decoder_new(const outrider_model *model);
void outrider_decoder_free(outrider_decoder *decoder);
outrider_fault outrider_decoder_forward(outrider_decoder *decoder, const outrider_step *step);
/* float32 [rows, vocabulary] of [rows, hidden] that `forward` wrote. */
void outrider_decoder_logits(outrider_decoder *decoder, const float *hidden, int64_t rows, float *out);
/* float32 [rows, hidden] of ids of the vocabulary: what enters the first layer. */
void outrider_decoder_embed(const outrider_decoder *decoder, const int64_t *ids, int64_t rows, float *out);

/* The draw. */

/* Float32 [n, vocabulary] variates, a row for each seed and position. */
void outrider_roll(const uint64_t *seeds, const int64_t *positions, int64_t n, int64_t vocabulary, float *out);

typedef struct outrider_race_rows {
  const float *logits; /* [n, vocabulary] */
  const uint64_t *seeds;
  const int64_t *positions;
  const float *temperatures; /* [n], like seeds and positions */
  int64_t n, vocabulary;
} outrider_race_rows;

/* Writes int64 [n] tokens that rows draw, -1 where nothing can be drawn; greedy where the temperature is below
   `greedy_below`. Returns whether all logits are numbers below `limit`; if not, the tokens are meaningless. */
int32_t outrider_race(const outrider_race_rows *rows, float greedy_below, float limit, int64_t *tokens);

/* Trees of guesses, written one behind the other. */

typedef struct outrider_tree {
  int64_t number;       /* of the session */
  int32_t length;       /* tokens of its sequence in front of the tree */
  int32_t first, nodes; /* index of its first node in the arrays, and number of nodes */
} outrider_tree;

typedef struct outrider_trees {
  outrider_tree *trees;
  int32_t *tokens, *parents; /* a parent is the index of a node within its tree, -1 at the top */
  double *confidences;       /* of a node, given that its parent is right */
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

/* How the target draws; temperature 0 where it is greedy. */
typedef struct outrider_shaping {
  float temperature, top_p, min_p;
  int32_t top_k;
} outrider_shaping;

typedef struct outrider_draft_opening {
  int64_t number;
  uint64_t seed;
  outrider_shaping shaping;
  const int32_t *tokens; /* [count], so far */
  int32_t count;
  int32_t most; /* nodes of the largest useful tree */
} outrider_draft_opening;

/* The next run of the model. */
typedef struct outrider_draft_run {
  int32_t rows;    /* 0 where there is nothing to do */
  int32_t decided; /* rows that are decided tokens */
  float promised;  /* sum of the probabilities of the nodes that it grows */
} outrider_draft_run;

typedef struct outrider_drafts outrider_drafts;

/* `pool` has empty pages of the decoder's kind. */
outrider_drafts *outrider_drafts_new(outrider_decoder *decoder, const outrider_model *model, const outrider_pool *pool,
                                     const outrider_draft_shape *shape);
void outrider_drafts_free(outrider_drafts *drafts);
/* Starts a session, in place of one of the same number. */
void outrider_drafts_open(outrider_drafts *drafts, const outrider_draft_opening *opening);
/* Appends decided tokens to a sequence of `length`; a session of another length ends. */
void outrider_drafts_commit(outrider_drafts *drafts, int64_t number, int32_t length, const int32_t *tokens, int32_t count);
/* Grows nothing more for a session until tokens are decided again. */
void outrider_drafts_rest(outrider_drafts *drafts, int64_t number);
void outrider_drafts_close(outrider_drafts *drafts, int64_t number);
int32_t outrider_drafts_free_pages(const outrider_drafts *drafts);
/* Whether a session has decided tokens that the model has not read. */
int32_t outrider_drafts_reading(const outrider_drafts *drafts);
/* Plans the next run, which grows no node less likely than `least`; replaces a plan that was not run. */
void outrider_drafts_plan(outrider_drafts *drafts, float least, outrider_draft_run *run);
/* Runs the model as last planned. */
void outrider_drafts_run(outrider_drafts *drafts);
/* Writes the trees that have improved, each of at most `most` nodes; returns their number. There must be room for one
   of each session. */
int32_t outrider_drafts_write(outrider_drafts *drafts, int32_t most, const outrider_trees *to);

/* Trees from suffix automata. */

typedef struct outrider_suffix_shape {
  int32_t least_match; /* latest tokens that must have occurred before */
  int32_t tokens;      /* of a tenant's answers that are remembered */
  int32_t tenants;     /* tenants that are remembered */
} outrider_suffix_shape;

typedef struct outrider_suffix_opening {
  int64_t number;
  const int32_t *tokens; /* [count], so far */
  const char *tenant;    /* [tenant_size] bytes */
  int32_t count;
  int32_t prompt; /* how many of the tokens are the prompt */
  int32_t most;   /* guesses of a tree */
  int32_t tenant_size;
} outrider_suffix_opening;

/* Decided tokens of several sessions. */
typedef struct outrider_suffix_commits {
  const int64_t *numbers; /* [size] sessions */
  const int32_t *counts;  /* [size] tokens of each */
  const int32_t *tokens;  /* session after session */
  int64_t size;
} outrider_suffix_commits;

typedef struct outrider_suffixes outrider_suffixes;

outrider_suffixes *outrider_suffixes_new(const outrider_suffix_shape *shape);
void outrider_suffixes_free(outrider_suffixes *suffixes);
/* Starts a session, in place of one of the same number. */
void outrider_suffixes_open(outrider_suffixes *suffixes, const outrider_suffix_opening *opening);
void outrider_suffixes_commit(outrider_suffixes *suffixes, const outrider_suffix_commits *commits);
/* Forgets a session, and keeps its answer for the tenant's later ones. */
void outrider_suffixes_close(outrider_suffixes *suffixes, int64_t number);
/* Drops the sessions and the answers of a tenant, whose name has `tenant_size` bytes; overwrites their memory. */
void outrider_suffixes_forget(outrider_suffixes *suffixes, const char *tenant, int32_t tenant_size);
/* Reads a bounded number of new tokens, and writes a tree for each session whose tokens have changed; returns their
   number. There must be room for one of each session. */
int32_t outrider_suffixes_write(outrider_suffixes *suffixes, const outrider_trees *to);
/* Memory held for sequences and answers. */
int64_t outrider_suffixes_bytes(const outrider_suffixes *suffixes);

/* The library. */

/* SHA-256 of this file, in hexadecimal, as it was when the library was compiled. */
const char *outrider_abi(void);
/* Whether this machine lets the library run. */
int32_t outrider_usable(void);
