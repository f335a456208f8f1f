// Calls whose target is known only when they are made. Every kernel takes (in, out, n).
typedef int (*Function)(int);

__device__ __noinline__ int triple(int x) { return x * 3 + 1; }
__device__ __noinline__ int flip(int x) { return x ^ 0x55; }
__device__ __noinline__ int square(int x)
{
    int sum = 0;
    for (int k = 0; k < (x & 7); k++)
        sum += x * k;
    return sum - 7;
}

__device__ Function in_global[4] = {triple, flip, square, flip};
__constant__ Function in_constant[3] = {square, flip, triple};
__device__ Function chosen;

#define AT int i = blockIdx.x * blockDim.x + threadIdx.x

// each lane its own function
extern "C" __global__ void table_in_global(const int *in, int *out, int n)
{
    AT;
    if (i < n)
        out[i] = in_global[in[i] & 3](in[i]);
}

// all lanes the same
extern "C" __global__ void table_in_constant(const int *in, int *out, int n)
{
    AT;
    if (i < n)
        out[i] = in_constant[n % 3](in[i]) + in_constant[blockIdx.x % 3](i);
}

// a pointer that another thread stored, called by some lanes in a loop
extern "C" __global__ void pointer_in_loop(const int *in, int *out, int n)
{
    AT;
    if (threadIdx.x == 0)
        chosen = n & 1 ? triple : flip;
    __syncthreads();
    Function f = chosen;
    int x = i < n ? in[i] : i;
    for (int k = 0; k < (x & 3); k++) {
        x = f(x + k);
        f = x & 1 ? square : triple;
    }
    if (i < n)
        out[i] = x;
}

__device__ __noinline__ int apply_twice(Function f, int x) { return f(f(x) + 1); }

extern "C" __global__ void pointer_as_argument(const int *in, int *out, int n)
{
    AT;
    int x = i < n ? in[i] : 0;
    Function f = x & 2 ? square : flip;
    int y = apply_twice(f, x);
    if (i < n)
        out[i] = y;
}

// recursion through a pointer: the depth differs from lane to lane
__device__ Function again;
__device__ __noinline__ int sum_down(int x) { return x <= 0 ? 1 : x + again(x - 1); }

extern "C" __global__ void recursion_by_pointer(const int *in, int *out, int n)
{
    AT;
    again = sum_down;
    __syncthreads();
    if (i < n)
        out[i] = again(in[i] & 7);
}

// the same depth in all lanes
extern "C" __global__ void even_recursion_by_pointer(const int *in, int *out, int n)
{
    AT;
    again = sum_down;
    __syncthreads();
    if (i < n)
        out[i] = again(n & 7) + in[i];
}

struct Shape {
    int size;
    __device__ virtual int area(int x) const = 0;
    __device__ virtual int name() const { return 1; }
};
struct Square : Shape {
    __device__ __noinline__ int area(int x) const override { return size * size + x; }
};
struct Strip : Shape {
    int width;
    __device__ __noinline__ int area(int x) const override { return size * width - x; }
    __device__ __noinline__ int name() const override { return 2 + width; }
};

// objects in local memory, one of two classes by lane
extern "C" __global__ void virtual_by_lane(const int *in, int *out, int n)
{
    AT;
    int x = i < n ? in[i] : 0;
    Square square_;
    Strip strip;
    square_.size = n;
    strip.size = 3;
    strip.width = n & 15;
    const Shape *shape = x & 1 ? static_cast<const Shape *>(&square_) : &strip;
    int y = shape->area(x) * shape->name();
    if (i < n)
        out[i] = y;
}

// objects in global memory that one thread made
extern "C" __global__ void virtual_by_block(const int *in, int *out, int n)
{
    AT;
    __shared__ Shape *shape;
    __shared__ Square square_;
    __shared__ Strip strip;
    if (threadIdx.x == 0) {
        new (&square_) Square();
        new (&strip) Strip();
        square_.size = n;
        strip.size = 5;
        strip.width = 2;
        shape = blockIdx.x & 1 ? static_cast<Shape *>(&square_) : &strip;
    }
    __syncthreads();
    if (i < n)
        out[i] = shape->area(in[i]) + shape->name();
}
