"""Common English words of four letters, for `wordle`. Changing the list changes instances of old ids."""

from __future__ import annotations

_LIST = """
able acid aged also area army away baby back bake bale ball band bank bare bark barn base bath bead beam
bean bear beat beef been bell belt bend bent best bike bill bind bird bite blow blue boat body boil bold
bolt bond bone book boom boot bore born boss both bowl bulk burn bush busy cage cake calf call calm came
camp cane cape card care cart case cash cast cave cell chat chef chin chip city clay clip club coal coat
code coil coin cold cook cool cope copy cord core cork corn cost cove crab crew crop cube cure curl dale
damp dare dark dart dash date dawn deal dear debt deck deed deep deer desk dial dice diet dine dirt dish
disk dive dock dome done door dose dove down draw drop drum duck dull dune dusk dust duty each earn ease
east easy edge else even ever exam face fact fade fail fair fall fame fare farm fast fate fear feed feel
fell felt fern file fill film find fine fire firm fish five flag flat flow foal foam fold folk fond food
foot fork form fort foul four free frog fuel full fund fuse gain gale game gate gave gaze gear germ gift
girl give glad glow glue goal goat gold golf gone good gown grab gray grid grin grip grow gulf hail hair
half hall halt hand hang hard hare harp hate haul have hawk head heal heap hear heat heel held helm help
herb herd here hero hide high hike hill hint hire hive hold hole home hood hook hope horn hose host hour
huge hunt hurt idea inch iron isle item jade join joke jump june jury just keen keep kelp kept kick kind
king kite knee knot know lace lack lake lamb lame lamp land lane last late lawn lazy lead leaf leak lean
leap left lend lens lent less lift like lily lime line link lion list live load loaf loan lock loft logo
lone long look loop lord lose loss loud love luck lung made mail main make male mall mane many mare mark
mask mass mast mate maze meal mean meat meet melt mend menu mice mild mile milk mill mind mine mint miss
mist moat mode mole moon moor more most moth move much mule must myth nail name navy near neat neck need
nest news next nine node none noon norm nose note noun oath obey odds okay only open oral oval oven over
pace pack page paid pain pair pale palm park part pass past path pave peak pear peel pier pile pill pine
pink pipe plan play plot plug poem pole poll pond pony pool poor pore port pose post pour pray prey pull
pump pure push quiz race rack raft rage rail rain rake ramp rank rare rate read real rear reed reef rent
rest rice rich ride ring ripe rise risk road roar robe rock rode role roll roof room root rope rose rude
ruin rule rush rust safe sage sail sake sale salt same sand sane save seal seat seed seek seem sell send
sent shed ship shoe shop shot show side sign silk sing sink site size skin slip slow snow soap sock soft
soil sold sole some song soon sore sort soul soup sour spin spot star stay stem step stir stop such suit
sure surf swan swim tail take tale talk tall tame tank tape task team tear tell tend tent term test text
than that them then tide tidy tile time tiny tire toad told toll tone tool torn tour town trap tray tree
trim trip tube tuna tune turn twin type unit upon urge used user vale vary vase vast veil vein vest view
vine volt vote wade wage wait wake walk wall wand want ware warm warn wash wave weak wear weed week well
went west wide wife wild will wind wine wing wire wise wish wolf wood wool word wore work worm worn wrap
yard yarn year zero zone
"""
WORDS = tuple(_LIST.split())
